"""Rewards: rule-based scoring of answers, and the representation-alignment bonus."""

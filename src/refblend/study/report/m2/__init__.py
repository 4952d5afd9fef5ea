"""Milestone M2: the ablations."""

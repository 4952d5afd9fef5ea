"""Milestone M1: stability."""

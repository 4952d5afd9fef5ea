"""Milestone M3: the recommendation, confirmed."""

"""Faults at random moments of real runs at scale smoke: ``make chaos``."""

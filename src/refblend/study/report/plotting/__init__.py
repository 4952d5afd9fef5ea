"""Shared by all figures."""

"""The study: grid of arms and seeds, collection of runs, statistics, tables, figures, reports.

Imports stay light here (no torch, vLLM or Ray): the workflow loads this package at every call.
"""

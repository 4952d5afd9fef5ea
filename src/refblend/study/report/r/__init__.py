"""Experiment R: does what the embedded models show hold for a model that somebody else trained?"""

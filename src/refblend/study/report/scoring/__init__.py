"""The scoring study: judges, experiment D, attacks."""

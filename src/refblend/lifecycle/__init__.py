"""How processes live and end: the guardian, supervision, stopping, stalls and faults."""

"""Statistics over seeds: pure functions of numbers."""

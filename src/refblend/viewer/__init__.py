"""Look at a run: on the console, or as one HTML page."""

"""What is run: experiments, the grid of arms and seeds, training jobs."""

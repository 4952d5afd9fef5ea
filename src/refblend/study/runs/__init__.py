"""From run directories to tidy frames and one number per run and measure."""

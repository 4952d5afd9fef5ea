"""The single-controller trainer: resources, the training loop, records and checkpoints."""

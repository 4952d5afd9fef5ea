"""What measures judges: corpora, attacks, calibration and robustness; training runs none of it."""

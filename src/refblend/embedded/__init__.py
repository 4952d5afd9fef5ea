"""The embedded actor and judge: architecture, supervised training and their quality."""

"""Hypothesis without a deadline (shared machines), without chance and without a database."""

import torch
from hypothesis import HealthCheck, settings

settings.register_profile(
    "refblend",
    max_examples=60,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("refblend")
torch.set_num_threads(1)

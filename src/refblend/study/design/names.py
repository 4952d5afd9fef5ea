"""Names of scales and milestones; importing them costs nothing."""

from typing import Literal, get_args

Scale = Literal["smoke", "cpu", "smollm", "gpu"]
SCALES: tuple[str, ...] = get_args(Scale)
Reported = Literal["m1", "m2", "m3", "r"]
MILESTONES: tuple[str, ...] = get_args(Reported)
SERIES = "series"
"""Experiments whose runs are still being made, block by block: declared, in no report yet."""
Milestone = Literal[Reported, "series"]

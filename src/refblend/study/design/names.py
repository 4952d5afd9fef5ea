"""Names of scales and milestones; importing them costs nothing."""

from typing import Literal, get_args

Scale = Literal["smoke", "cpu", "smollm", "gpu", "gpu7b"]
SCALES: tuple[str, ...] = get_args(Scale)
GRID_OF: dict[Scale, Scale] = {"gpu7b": "gpu"}
"""Scales that run the arms and seeds of another one, but for its experiments on resources."""
Reported = Literal["m1", "m2", "m3", "r"]
MILESTONES: tuple[str, ...] = get_args(Reported)
SERIES = "series"
"""Experiments whose runs are still being made, block by block: declared, in no report yet."""
Milestone = Literal[Reported, "series"]

"""Names of scales, milestones, files and folders; importing them costs nothing."""

from pathlib import Path
from typing import Literal, get_args

Scale = Literal["smoke", "cpu", "smollm", "gpu", "gpu7b"]
SCALES: tuple[str, ...] = get_args(Scale)
GRID_OF: dict[Scale, Scale] = {"gpu7b": "gpu"}
"""Scales that run the arms and seeds of another one, but for its experiments on resources."""
Reported = Literal["m1", "m2", "m3", "r"]
MILESTONES: tuple[str, ...] = get_args(Reported)
SCORING = "scoring"
REPORTS = (SCORING, *MILESTONES)
"""The reports of a whole scale."""
SERIES = "series"
"""Experiments whose runs are still being made, block by block: declared, in no report yet."""
Milestone = Literal[Reported, "series"]
COLLECTED = ("runs.csv", "runs.parquet", "responses.parquet")
"""Files with the numbers of runs, of ``refblend study collect`` and of a scale's archive."""


def run_dir(scale: str, arm: str, seed: str | int, root: str | Path = "runs") -> Path:
    """``runs/<scale>/<arm>/seed_<k>``."""
    return Path(root) / scale / arm / f"seed_{seed}"

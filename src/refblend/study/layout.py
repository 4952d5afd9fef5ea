"""File names that the workflow and the package share."""

from pathlib import Path

from refblend.embedded.recipe import StrengthSteps

COLLECTED = ("runs.csv", "runs.parquet", "responses.parquet")
"""Files with the numbers of runs, of ``refblend study collect`` and of a scale's archive."""

JUDGES = tuple(StrengthSteps.model_fields)
"""Strengths of the embedded judge as ``judge.steps`` of ``params/embedded/<scale>.yaml`` names
them, in the order in which each continues the one before."""


def run_dir(scale: str, arm: str, seed: str | int, root: str | Path = "runs") -> Path:
    """``runs/<scale>/<arm>/seed_<k>``."""
    return Path(root) / scale / arm / f"seed_{seed}"

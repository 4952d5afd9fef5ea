"""What a scale's runs say of a contrast that none of its experiments declares.

The two arms are compared on the seeds that both have in one experiment of M2, the one with the most
of them; pair by pair, so that no two runs of different models are compared, and as a family of one.
As nobody declared it there, it is exploratory.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from refblend.errors import StudyError
from refblend.study.design.measures import MEASURES
from refblend.study.design.spec import ExperimentSpec, experiments_of
from refblend.study.report.registry import read_experiments
from refblend.study.stats.verdicts import Contrast, decide

PER_SEED = Path("m2", "tables", "per_seed.csv")
"""M2's table of every measure of every run, below a scale's results."""
Row = dict[str, Any]


class Counterparts:
    """Computes counterparts at one scale; there are none where M2 has no table of runs."""

    def __init__(self, scale: str, results: Path, params: Path) -> None:
        self.scale = scale
        self.runs = read_per_seed(results / PER_SEED)
        self.experiments: Mapping[str, ExperimentSpec] = read_experiments(
            tuple(experiments_of("m2", params, scale)), params
        )

    def of(self, row: Mapping[Any, Any]) -> Row | None:
        """The counterpart of a verdict's row, with what :mod:`.beside` tells of one; null where
        fewer than two seeds have both arms and the measure.

        Margin and level are the row's own.
        """
        measure, arms = row["endpoint"], (row["treated"], row["reference"])
        better = MEASURES[measure].higher_is_better if measure in MEASURES else None
        if better is None or measure not in self.runs:
            return None
        found: dict[str, Contrast] = {}
        for name, spec in self.experiments.items():
            seeds = spec.seeds_by_arm(self.scale)
            if all(seeds.get(arm) for arm in arms):
                x, y = (self.values(arm, measure, seeds[arm]) for arm in arms)
                found[name] = Contrast(x, y, row["margin"], better)
        most = max(found, key=lambda name: found[name].runs(paired=True)[0].size, default="")
        if not most or found[most].runs(paired=True)[0].size < 2:
            return None
        return _told(most, found[most], float(row["alpha"]))

    def values(self, arm: str, measure: str, seeds: list[int]) -> pd.Series:
        """A measure of an arm's finished runs, by seed."""
        part = self.runs[(self.runs.arm == arm) & self.runs.seed.isin(seeds)]
        return part.set_index("seed")[measure]


def _told(experiment: str, contrast: Contrast, alpha: float) -> Row:
    (found,) = decide([contrast], [True], alpha)
    difference = found.difference
    return {
        "experiment": experiment,
        "primary": False,
        "n": found.n,
        "verdict": found.verdict,
        "estimate": difference.estimate,
        "low": difference.low,
        "high": difference.high,
        "margin": contrast.margin,
        "detectable": found.detectable,
        "declared": False,
    }


def read_per_seed(path: Path) -> pd.DataFrame:
    """M2's table of runs; no row where it is not there.

    Raises:
        StudyError: it cannot be read, or is no such table.
    """
    if not path.exists():
        return pd.DataFrame(columns=["arm", "seed"])
    try:
        table = pd.read_csv(path, keep_default_na=False, na_values=[""])
        return table.astype({"arm": "str", "seed": "int64"})
    except (OSError, ValueError, KeyError) as error:
        reason = f"{path}: the runs cannot be read ({error})"
        raise StudyError(reason, "Rebuild M2 first, e.g. by `snakemake m2`.") from None

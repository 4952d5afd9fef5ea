"""What M2 decides by a stated rule: the knee of B, the pivot of C, G's better placement."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from refblend.seeding import derive_generator
from refblend.study.report.m2.study import M2Study
from refblend.study.stats.comparisons import best_configuration
from refblend.study.stats.statistics import paired_values, student_interval
from refblend.study.stats.thresholds import Choice, find_knee, find_pivot, not_identifiable

SCORE = "algorithm.ref_quality_score"
PLACEMENT = f"{SCORE}.placement"
LEVEL_MEASURES = ("test_greedy", "val_best", "val_auc", "final_return")


@dataclass(frozen=True)
class Sweep:
    """One knob over several levels, everything else as in the default arm."""

    experiment: str
    key: str
    rule: str
    prefix: str = "linear_terminal"
    """Arms that are levels: this one and those that append a level to its name."""

    def levels(self, study: M2Study) -> dict[float, str]:
        """Level → arm, increasing; of the arms that the experiment has at this scale."""
        arms = [arm for arm in study.arms(self.experiment) if arm.startswith(self.prefix)]
        return dict(sorted((float(study.setting(arm, self.key)), arm) for arm in arms))


SWEEPS = (
    Sweep("B", f"{SCORE}.max_weight", "knee"),
    Sweep("C", f"{SCORE}.entropy_high_threshold", "pivot"),
)


def sweep_values(study: M2Study, sweep: Sweep, measure: str) -> tuple[pd.DataFrame, pd.Series]:
    """Values of a sweep, one column a level, and of its baseline; one row a seed."""
    levels = sweep.levels(study)
    table = study.wide(sweep.experiment, measure)
    baseline = study.experiments[sweep.experiment].baseline
    base = table.get(baseline, pd.Series(np.nan, index=table.index))
    return table[list(levels.values())].set_axis(list(levels), axis=1), base


def level_means(study: M2Study) -> pd.DataFrame:
    """Every level of B and C: mean, and difference to the baseline, with Student's intervals."""
    rows = []
    for sweep in SWEEPS:
        if not study.arms(sweep.experiment):
            continue
        names = sweep.levels(study)
        for measure in LEVEL_MEASURES:
            values, base = sweep_values(study, sweep, measure)
            for level, arm in names.items():
                own = student_interval(values[level].dropna())
                gain = student_interval(paired_values(values[level], base))
                rows.append(
                    {
                        "experiment": sweep.experiment,
                        "measure": measure,
                        "level": level,
                        "arm": arm,
                        "n": own.n,
                        "mean": own.estimate,
                        "low": own.low,
                        "high": own.high,
                        "diff": gain.estimate,
                        "diff_low": gain.low,
                        "diff_high": gain.high,
                    }
                )
    columns = ["experiment", "measure", "level", "arm", "n", "mean", "low", "high"]
    return pd.DataFrame(rows, columns=[*columns, "diff", "diff_low", "diff_high"])


KNEE_COLUMNS = [
    "experiment",
    "rule",
    "measure",
    "levels",
    "n",
    "chosen",
    "low",
    "high",
    "stability",
    "best_level",
    "sign_changes",
    "identifiable",
    "why_not",
]


def knee_and_pivot(study: M2Study) -> pd.DataFrame:
    """The level that the rule chooses for every measure, its interval over seeds, or why not.

    Returns:
        :data:`KNEE_COLUMNS`; ``chosen`` is what the rule gives also where it is not identifiable,
        ``low`` and ``high`` are its 95 % interval over resampled seeds.
    """
    rows = []
    for sweep in SWEEPS:
        if not study.arms(sweep.experiment):
            continue
        for measure in LEVEL_MEASURES:
            values, base = sweep_values(study, sweep, measure)
            rng = derive_generator("m2", sweep.experiment, sweep.rule, measure)
            if sweep.rule == "knee":
                knee = find_knee(values, rng)
                choice: Choice = knee
                extra: dict[str, Any] = {"best_level": knee.best}
            else:
                pivot = find_pivot(values, base, rng)
                choice, extra = pivot, {"sign_changes": pivot.changes}
            why = not_identifiable(choice, list(values.columns))
            low, high = choice.interval() or (np.nan, np.nan)
            rows.append(
                {
                    "experiment": sweep.experiment,
                    "rule": sweep.rule,
                    "measure": measure,
                    "levels": ", ".join(f"{level:g}" for level in values.columns),
                    "n": choice.n,
                    "chosen": choice.level,
                    "low": low,
                    "high": high,
                    "stability": choice.stability,
                    "identifiable": not why,
                    "why_not": why,
                    **extra,
                }
            )
    types = {"chosen": "float64", "best_level": "float64", "sign_changes": "Int64"}
    return pd.DataFrame(rows, columns=KNEE_COLUMNS).astype(types)


PLACEMENT_COLUMNS = [
    "estimator",
    "arm",
    "placement",
    "n",
    "mean",
    "low",
    "high",
    "best",
    "share_best",
    "distinguishable",
    "swept",
]
PLACEMENT_MEASURE = "test_greedy"
SWEPT = ("B", "C", "H")
"""Experiments that are to run under the better placement."""


def placement_rule(study: M2Study) -> pd.DataFrame:
    """G's placements of the judge's score under each estimator, and which of them is better.

    Rule: among the arms with a judge under one estimator, the better placement is the one with the
    best mean accuracy on the test set over the seeds that all have; it is *shown* to be better
    than another if that one is distinguishable from it (:func:`best_configuration`).

    Returns:
        :data:`PLACEMENT_COLUMNS`; ``distinguishable`` from the best, missing for the best itself;
        ``swept``: arms of B, C and H run under this placement.
    """
    baselines = {study.baseline("G", arm) for arm in study.arms("G")}
    arms = [arm for arm in study.arms("G") if arm not in baselines]
    swept = swept_placements(study)
    rows = []
    for estimator in ("grpo", "gae"):
        mine = [arm for arm in arms if arm.startswith("gae_") == (estimator == "gae")]
        if not mine:
            continue
        values = study.wide("G", PLACEMENT_MEASURE)[mine]
        best = best_configuration(values, derive_generator("m2", "G", "placement", estimator))
        for arm in mine:
            own = student_interval(values[arm].dropna())
            placement = str(study.setting(arm, PLACEMENT))
            other = pd.NA if arm not in best.gaps else arm not in best.not_distinguishable
            rows.append(
                {
                    "estimator": estimator,
                    "arm": arm,
                    "placement": placement,
                    "n": own.n,
                    "mean": own.estimate,
                    "low": own.low,
                    "high": own.high,
                    "best": arm == best.arm,
                    "share_best": best.share if arm == best.arm else np.nan,
                    "distinguishable": other,
                    "swept": placement in swept,
                }
            )
    types = {"distinguishable": "boolean"}
    return pd.DataFrame(rows, columns=PLACEMENT_COLUMNS).astype(types)


def swept_placements(study: M2Study) -> set[str]:
    """Placements that B, C and H vary other knobs under: all but the spec's default arm's."""
    found = set()
    for name in SWEPT:
        for arm in study.arms(name):
            if arm != "linear" and arm != study.baseline(name, arm):
                found.add(str(study.setting(arm, PLACEMENT)))
    return found

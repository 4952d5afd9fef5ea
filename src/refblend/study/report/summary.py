"""Every arm and measure over its seeds, and against its baseline, for all reports."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from refblend.seeding import derive_generator
from refblend.study.design.measures import MEASURES
from refblend.study.stats.comparisons import Comparison, compare_pairs, probability_of_improvement
from refblend.study.stats.statistics import Interval, bootstrap_interval, iqm, student_interval

MAIN_MEASURES = (
    "test_greedy", "test_sampled", "val_final", "val_best", "val_gain", "val_auc", "val_drawdown",
    "final_return", "loss_spikes", "grad_spikes", "entropy_end", "entropy_collapse", "length_end",
    "weight_mean", "judge_auc", "nonzero_rate", "valid_rate",
)  # fmt: skip
"""What experiments that learn are compared by, the headline first."""

MARGIN = 0.02
"""Accuracies and rates that differ by less are equivalent; other measures have no margin."""

_TYPES = dict.fromkeys(("arm", "measure", "baseline", "verdict", "note"), "str")
_TYPES |= {"runs": "int64", "n": "int64", "pairs": "Int64", "interval_excludes_0": "boolean"}
_NAMES = (
    "arm", "measure", "baseline", "runs", "n", "mean", "iqm", "low", "high", "boot_low",
    "boot_high", "pairs", "diff", "diff_low", "diff_high", "diff_boot_low", "diff_boot_high",
    "diff_family_low", "diff_family_high", "prob_improvement", "prob_low", "prob_high", "p",
    "p_holm", "smallest_p", "smallest_p_holm", "verdict", "interval_excludes_0", "note",
)  # fmt: skip
SUMMARY_COLUMNS = {name: _TYPES.get(name, "float64") for name in _NAMES}
"""Columns of a summary: ``low, high`` and ``diff_low, diff_high`` are Student's 95 % intervals,
``boot_*`` bootstrap ones, ``diff_family_*`` Student's with Bonferroni over the measure's family;
``runs`` counts planned runs, ``n`` those that have the measure, ``pairs`` seeds of both arms."""


@dataclass(frozen=True)
class Family:
    """Comparisons that are adjusted together: one experiment, every measure a family of its own."""

    name: str
    arms: Sequence[str]
    pairs: Sequence[tuple[str, str]]
    """(arm, baseline) of every comparison."""


def summarise(
    family: Family, values_of: Callable[[str], pd.DataFrame], measures: Sequence[str]
) -> pd.DataFrame:
    """One row per measure and arm: :data:`SUMMARY_COLUMNS`.

    Args:
        family: the arms, and which is compared with which.
        values_of: measure → one row per seed, one column per arm.
        measures: what is summarised; measures that no arm has are left out.
    """
    rows: list[dict[str, Any]] = []
    for measure in measures:
        values = values_of(measure)
        if not values.notna().to_numpy().any():
            continue
        # A baseline that cannot have the measure (a judge's, without a judge) gives no comparison.
        pairs = [pair for pair in family.pairs if values[pair[1]].notna().any()]
        known = MEASURES.get(measure)
        comparisons = compare_pairs(
            values,
            pairs,
            derive_generator("m2", family.name, measure, "difference"),
            margin=MARGIN if known and known.unit == "share" and known.higher_is_better else 0.0,
            higher_is_better=known.higher_is_better if known else None,
        )
        by_arm = {comparison.arm: comparison for comparison in comparisons}
        for arm in family.arms:
            row = {"arm": arm, "measure": measure, "runs": len(values)}
            rng = derive_generator("m2", family.name, measure, arm, "mean")
            row |= describe(values[arm].dropna(), rng)
            if arm in by_arm:
                row |= _compared(by_arm[arm], values, measure, family.name)
            row["note"] = _note(row, arm in by_arm, arm in dict(family.pairs))
            rows.append(row)
    return pd.DataFrame(rows, columns=list(SUMMARY_COLUMNS)).astype(SUMMARY_COLUMNS)


def empty_summary() -> pd.DataFrame:
    """A summary without rows, with its columns."""
    return pd.DataFrame(columns=list(SUMMARY_COLUMNS)).astype(SUMMARY_COLUMNS)


def describe(values: pd.Series, rng: np.random.Generator) -> dict[str, Any]:
    """Number, mean, IQM and intervals of one arm's values."""
    student, boot = student_interval(values), bootstrap_interval(values, rng)
    return {
        "n": student.n,
        "mean": student.estimate,
        "iqm": float(iqm(values.to_numpy())) if len(values) else np.nan,
        **_bounds("", student),
        **_bounds("boot_", boot),
    }


def _compared(
    comparison: Comparison, values: pd.DataFrame, measure: str, family: str
) -> dict[str, Any]:
    """The columns of a comparison with the baseline."""
    arm, baseline = comparison.arm, comparison.baseline
    row: dict[str, Any] = {
        "baseline": baseline,
        "pairs": comparison.student.n,
        "diff": comparison.student.estimate,
        **_bounds("diff_", comparison.student),
        **_bounds("diff_boot_", comparison.difference),
        **_bounds("diff_family_", comparison.simultaneous),
        "p": comparison.p,
        "p_holm": comparison.p_holm,
        "smallest_p": comparison.smallest_p,
        "smallest_p_holm": comparison.smallest_p_holm,
        "verdict": comparison.verdict if comparison.student.n else "no pair",
        "interval_excludes_0": comparison.interval_excludes_zero,
    }
    better = MEASURES[measure].higher_is_better if measure in MEASURES else None
    if better is not None:
        sign = 1.0 if better else -1.0
        rng = derive_generator("m2", family, measure, arm, "improvement")
        improvement = probability_of_improvement(
            sign * values[arm].dropna(), sign * values[baseline].dropna(), rng
        )
        row |= {"prob_improvement": improvement.estimate, **_bounds("prob_", improvement)}
    return row


def _bounds(prefix: str, interval: Interval) -> dict[str, float]:
    return {f"{prefix}low": interval.low, f"{prefix}high": interval.high}


def _note(row: dict[str, Any], compared: bool, wanted: bool) -> str:
    """Why something of the row is absent; empty where nothing is."""
    if row["n"] == 0:
        return "no run has this measure"
    parts = []
    if row["n"] < row["runs"]:
        parts.append(f"{row['runs'] - row['n']} of {row['runs']} runs without it")
    if row["n"] == 1:
        parts.append("one run: no interval")
    if wanted and not compared:
        parts.append("the baseline does not have it")
    if compared and row["pairs"] == 0:
        parts.append("no seed in common with the baseline")
    elif compared and row["pairs"] == 1:
        parts.append("one pair: no interval of the difference")
    elif compared and row["interval_excludes_0"] is None:
        parts.append("all differences equal: their interval says nothing")
    return "; ".join(parts)

"""Every arm and measure over its seeds, and against its baseline, for all reports."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from refblend.seeding import derive_generator
from refblend.study.design.measures import MEASURES
from refblend.study.design.spec import ExperimentSpec
from refblend.study.stats.comparisons import Comparison, compare_pairs, probability_of_improvement
from refblend.study.stats.statistics import Interval, bootstrap_interval, iqm, student_interval

MAIN_MEASURES = (
    "test_greedy", "test_sampled", "val_final", "val_best", "val_gain", "val_auc", "val_drawdown",
    "final_return", "loss_spikes", "grad_spikes", "entropy_end", "entropy_collapse", "length_end",
    "weight_mean", "judge_auc", "nonzero_rate", "valid_rate",
)  # fmt: skip
"""What experiments that learn are compared by, the headline first."""

_TYPES = dict.fromkeys(("arm", "measure", "baseline", "verdict", "note"), "str")
_TYPES |= {"runs": "int64", "n": "int64", "pairs": "Int64", "interval_excludes_0": "boolean"}
_NAMES = (
    "arm", "measure", "baseline", "runs", "n", "mean", "iqm", "low", "high", "boot_low",
    "boot_high", "pairs", "diff", "diff_low", "diff_high", "diff_boot_low", "diff_boot_high",
    "diff_family_low", "diff_family_high", "prob_improvement", "prob_low", "prob_high", "p",
    "p_holm", "smallest_p", "smallest_p_holm", "verdict", "interval_excludes_0", "note",
)  # fmt: skip
SUMMARY_COLUMNS = {name: _TYPES.get(name, "float64") for name in _NAMES}
"""Columns of a summary. ``low, high`` is Student's 95 % interval, ``diff_low, diff_high`` Student's
at 1 − the family's alpha; ``boot_*`` are bootstrap intervals, ``diff_family_*`` Student's with
Bonferroni over the measure's family. ``runs`` counts planned runs, ``n`` those that have the
measure, ``pairs`` seeds of both arms."""


@dataclass(frozen=True)
class Family:
    """Comparisons that are adjusted together: one experiment, every measure a family of its own."""

    name: str
    arms: Sequence[str]
    pairs: Sequence[tuple[str, str]]
    """(arm, baseline) of every comparison."""
    planned: Mapping[str, int] = field(default_factory=dict)
    """Arm → its planned runs; an arm that is not here has one in every row of the values."""
    alpha: float = 0.05
    """Level of the verdicts; intervals of differences have confidence 1 − alpha."""
    margin: float = 0.02
    """Arms whose difference lies within ± this are equivalent."""
    unit: str = "share"
    """Of which measures: those of this unit of which more is better; others have no margin."""

    def declared_by(self, spec: ExperimentSpec) -> "Family":
        """The same with an experiment's level and margin, which is in its endpoint's unit."""
        known = MEASURES.get(spec.endpoint)
        unit = known.unit if known else self.unit
        return replace(self, alpha=spec.alpha, margin=spec.margin, unit=unit)

    def margin_of(self, measure: str) -> float:
        """The margin of a measure; 0 where it has none, and nothing is equivalent."""
        known = MEASURES.get(measure)
        has_one = known and known.unit == self.unit and known.higher_is_better
        return self.margin if has_one else 0.0


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
            alpha=family.alpha,
            margin=family.margin_of(measure),
            higher_is_better=known.higher_is_better if known else None,
        )
        by_arm = {comparison.arm: comparison for comparison in comparisons}
        for arm in family.arms:
            planned = family.planned.get(arm, len(values))
            row: dict[str, Any] = {"arm": arm, "measure": measure, "runs": planned}
            rng = derive_generator("m2", family.name, measure, arm, "mean")
            row |= describe(values[arm].dropna(), rng)
            if arm in by_arm:
                row |= _compared(by_arm[arm], values, measure, family.name)
            row["note"] = _note(row, arm in by_arm, arm in dict(family.pairs))
            rows.append(row)
    return summary_frame(rows)


def summary_frame(rows: Sequence[dict[str, Any]] = ()) -> pd.DataFrame:
    """A summary of some rows, with all its columns."""
    return pd.DataFrame(list(rows), columns=list(SUMMARY_COLUMNS)).astype(SUMMARY_COLUMNS)


def bounds(found: Interval, prefix: str = "", name: str = "") -> dict[str, float]:
    """Columns ``<prefix>low`` and ``<prefix>high``, and the estimate as ``name`` if it has one."""
    ends = {f"{prefix}low": found.low, f"{prefix}high": found.high}
    return ends | ({name: found.estimate} if name else {})


def describe(values: pd.Series, rng: np.random.Generator) -> dict[str, Any]:
    """Number, mean, IQM and intervals of one arm's values."""
    student, boot = student_interval(values), bootstrap_interval(values, rng)
    middle = float(iqm(values.to_numpy())) if len(values) else np.nan
    row = {"n": student.n, "iqm": middle} | bounds(student, name="mean")
    return row | bounds(boot, "boot_")


def _compared(found: Comparison, values: pd.DataFrame, measure: str, family: str) -> dict[str, Any]:
    """The columns of a comparison with the baseline."""
    same = ("baseline", "p", "p_holm", "smallest_p", "smallest_p_holm")
    row: dict[str, Any] = {name: getattr(found, name) for name in same}
    row |= bounds(found.student, "diff_", "diff") | bounds(found.difference, "diff_boot_")
    row |= bounds(found.simultaneous, "diff_family_")
    row |= {
        "pairs": found.student.n,
        "verdict": found.verdict if found.student.n else "no pair",
        "interval_excludes_0": found.interval_excludes_zero,
    }
    better = MEASURES[measure].higher_is_better if measure in MEASURES else None
    if better is not None:
        sign = 1.0 if better else -1.0
        rng = derive_generator("m2", family, measure, found.arm, "improvement")
        treated, base = (sign * values[arm].dropna() for arm in (found.arm, found.baseline))
        improvement = probability_of_improvement(treated, base, rng)
        row |= bounds(improvement, "prob_", "prob_improvement")
    return row


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

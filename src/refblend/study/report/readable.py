"""Numbers as readers see them: intervals in one cell, a table of main measures, and phrases."""

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from refblend.study.design.measures import label
from refblend.study.stats.statistics import Interval

Row = dict[str, Any]
"""A row of a summary."""

SHOWN = {
    "test_greedy": "test acc.",
    "val_best": "val. acc., best",
    "val_auc": "val. acc., curve",
    "final_return": "return",
    "length_end": "length",
}
"""Measures of an experiment that learns, and their headings."""


def interval_text(mean: float, low: float, high: float, signed: bool = False) -> str:
    """``0.512 [0.480, 0.544]``; no brackets without an interval, a dash without a value."""
    if pd.isna(mean):
        return "–"
    bounds = "" if pd.isna(low) else f" [{number(low, signed)}, {number(high, signed)}]"
    return number(mean, signed) + bounds


def number(value: float, signed: bool = False) -> str:
    """Three decimals below 10, one decimal below 1000, none above."""
    size = abs(value)
    digits = 3 if size < 10 else 1 if size < 1000 else 0
    return f"{value:+.{digits}f}" if signed else f"{value:.{digits}f}"


def readable_summary(summary: pd.DataFrame, endpoint: str) -> pd.DataFrame:
    """One row per arm of an experiment that learns.

    Columns: arm, n, mean and interval of :data:`SHOWN`, and for the endpoint the paired
    difference, the probability of improvement, Holm's p with the smallest possible one, the
    verdict, and whether the simultaneous interval excludes 0.
    """
    rows: dict[str, dict[str, Any]] = {}
    shown_measures = SHOWN if endpoint in SHOWN else {endpoint: label(endpoint)} | SHOWN
    for row in summary[summary.measure.isin(shown_measures)].to_dict("records"):
        cells = rows.setdefault(row["arm"], {"arm": row["arm"]})
        if row["measure"] == endpoint:
            cells |= _headline(row)
        cells[shown_measures[row["measure"]]] = interval_text(row["mean"], row["low"], row["high"])
    table = pd.DataFrame(list(rows.values()))
    if table.empty:
        return pd.DataFrame(columns=["arm", "n"])
    wanted = ["arm", "n", *shown_measures.values()]
    shown = [name for name in wanted if name in table]
    return table[[*shown, *[name for name in table if name not in shown]]]


def _headline(row: dict[str, Any]) -> dict[str, Any]:
    """What is said about one arm at the endpoint."""
    cells: dict[str, Any] = {"n": f"{row['n']} of {row['runs']}"}
    if pd.isna(row["baseline"]):
        compared = ("difference", "against", "P(improvement)", "p Holm (smallest)")
        said = {"verdict": "baseline", "interval excludes 0": "–", "note": row["note"]}
        return cells | dict.fromkeys(compared, "–") | said
    return cells | {
        "difference": change(row),
        "against": row["baseline"],
        "P(improvement)": probability(row),
        **compared_cells(row),
        "note": row["note"],
    }


def compared_cells(row: dict[str, Any]) -> dict[str, Any]:
    """What test, rule and simultaneous interval say of a comparison."""
    excludes = row["interval_excludes_0"]
    return {
        "p Holm (smallest)": f"{row['p_holm']:.3g} ({row['smallest_p_holm']:.3g})",
        "verdict": row["verdict"],
        "interval excludes 0": "–" if pd.isna(excludes) else "yes" if excludes else "no",
    }


def own(row: Row) -> str:
    """The arm's mean with its interval and n."""
    return f"{interval_text(row['mean'], row['low'], row['high'])} (n = {row['n']})"


def difference(row: Row) -> str:
    """The paired difference with its interval and n; says so where there is none."""
    if pd.isna(row["diff"]):
        return "no pair"
    return f"{change(row)} ({row['pairs']} pair{'s' if row['pairs'] != 1 else ''})"


def change(row: Row) -> str:
    """The paired difference with its interval."""
    return interval_text(row["diff"], row["diff_low"], row["diff_high"], signed=True)


def estimate(row: Row) -> str:
    """The difference of a verdict with its interval."""
    return interval_text(row["estimate"], row["low"], row["high"], signed=True)


def counts(incidents: Mapping[str, int]) -> str:
    """``overlength 0, oom 0, …``."""
    return ", ".join(f"{name.replace('_', '-')} {count}" for name, count in incidents.items())


def names(arms: Iterable[str]) -> str:
    """Arms as code, separated by commas; "none" for none."""
    return ", ".join(f"`{arm}`" for arm in arms) or "none"


def probability(row: Row) -> str:
    """Probability of improvement with its interval."""
    return interval_text(row["prob_improvement"], row["prob_low"], row["prob_high"])


def interval(found: Interval, signed: bool = False) -> str:
    """An interval with its estimate."""
    return interval_text(found.estimate, found.low, found.high, signed)

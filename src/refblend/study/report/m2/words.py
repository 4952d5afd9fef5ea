"""Phrases about the numbers of M2's tables."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from refblend.study.report.readable import interval_text

Tables = Mapping[str, pd.DataFrame]
Row = dict[str, Any]

NO_DATA = "No run of this experiment has finished, so there is nothing to report."
DETERMINED = 0.05


def own(row: Row) -> str:
    """The arm's mean with its interval and n."""
    return f"{interval_text(row['mean'], row['low'], row['high'])} (n = {row['n']})"


def difference(row: Row) -> str:
    """The paired difference with its interval and n; says so where there is none."""
    if pd.isna(row["diff"]):
        return "no pair"
    text = interval_text(row["diff"], row["diff_low"], row["diff_high"], signed=True)
    return f"{text} ({row['pairs']} pair{'s' if row['pairs'] != 1 else ''})"


def probability(row: Row) -> str:
    """Probability of improvement with its interval."""
    return interval_text(row["prob_improvement"], row["prob_low"], row["prob_high"])


def names(arms: Sequence[str]) -> str:
    """Arms as code, separated by commas; "none" for none."""
    return ", ".join(f"`{arm}`" for arm in arms) or "none"


def level_text(row: Row) -> str:
    """A chosen level with its interval over seeds, or that it is not identifiable, and why."""
    if not row["identifiable"]:
        chosen = "" if pd.isna(row["chosen"]) else f" (the rule alone gives {row['chosen']:g})"
        return f"not identifiable, {row['why_not']}{chosen}"
    return (
        f"{row['chosen']:g}, 95 % interval over resampled seeds {row['low']:g} to {row['high']:g},"
        f" chosen in {row['stability']:.0%} of the resamples, n = {row['n']}"
    )

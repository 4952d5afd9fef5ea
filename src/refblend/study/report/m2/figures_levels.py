"""M2's sweeps: every measure against the level, with the knee or the pivot."""

import textwrap
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from refblend.study.design.spec import SweepSpec
from refblend.study.report.m2.labels import level_name
from refblend.study.report.m2.levels import LEVEL_MEASURES, levels_of, sweep_values
from refblend.study.report.m2.study import REPORT, M2Study, sweeps
from refblend.study.report.m2.words import Tables
from refblend.study.report.plotting.common import (
    Drawn,
    no_data,
    one_legend,
    value_limits,
    vertical_interval,
)
from refblend.study.report.plotting.style import BASELINE_COLOUR, COLUMN
from refblend.study.runs.measures import MEASURES

COLOUR = "#0173b2"
CHOSEN_COLOUR = "#d55e00"
SHORT = {
    "test_greedy": "test accuracy (greedy)",
    "val_best": "best validation accuracy",
    "val_auc": "validation accuracy, mean of curve",
    "final_return": "training return, last 5 steps",
}
RULES = {
    "knee": "the knee is the smallest level within one standard error of the best",
    "pivot": "the pivot is the last level before the difference to the baseline changes its sign",
}


@REPORT.figure("{experiment}_sensitivity", each=sweeps)
def sensitivity(study: M2Study, tables: Tables, experiment: str) -> Drawn:
    """Every measure of a sweep against its parameter."""
    sweep = study.experiments[experiment].sweep
    assert sweep is not None, "asked of sweeps only"
    figure, axes = plt.subplots(2, 2, figsize=(2 * COLUMN, 1.45 * COLUMN), sharex=True)
    for axis, measure in zip(axes.flat, LEVEL_MEASURES, strict=True):
        _panel(axis, study, tables, experiment, measure)
        _choice(axis, tables["knee_pivot"], experiment, sweep, measure)
    name = sweep.key.rpartition(".")[2]
    for axis in axes[-1]:
        axis.set_xlabel(name)
    one_legend(figure, axes.flat)
    places = {study.resolved[arm].placement for arm in levels_of(study, experiment).values()}
    where = " and ".join(level_name(place) for place in sorted(places)) or "none"
    return figure, (
        f"Experiment {experiment}: each measure against {name}, placement {where}, all else equal. "
        "Bars: Student's 95 % interval, an arrow head where it goes on beyond the panel; thin "
        "lines: seeds; grey: mean of the baseline. Vertical "
        f"line: the {sweep.rule} with the share of resampled seeds that choose it; "
        f"{RULES[sweep.rule]}. Not identifiable where the interval of that choice is the whole "
        f"range, or too little was run. {study.origin(experiment)}"
    )


def _panel(axis: Axes, study: M2Study, tables: Tables, experiment: str, measure: str) -> None:
    """One measure: seeds, means and baseline."""
    axis.set_title(SHORT[measure])
    axis.set_ylabel(MEASURES[measure].unit)
    if not levels_of(study, experiment):
        no_data(axis, f"no arms of {experiment} at this scale")
        return
    values, base = sweep_values(study, experiment, measure)
    means = tables["levels"]
    means = means[(means.experiment == experiment) & (means.measure == measure)]
    levels = list(values.columns)
    axis.set_xticks(levels)
    gap = min(np.diff(levels)) if len(levels) > 1 else 1.0
    axis.set_xlim(levels[0] - 0.4 * gap, levels[-1] + 0.4 * gap)
    limits = value_limits([*values.to_numpy().ravel(), base.mean()], [*means.low, *means.high])
    if values.isna().to_numpy().all() or limits is None:
        no_data(axis)
        return
    bottom, top = limits
    axis.set_ylim(bottom, top)
    for _, seed in values.iterrows():
        axis.plot(levels, seed, color=COLOUR, linewidth=0.5, alpha=0.5, marker=".", markersize=2)
    axis.plot(means.level, means["mean"], color=COLOUR, marker="o", markersize=4, label="mean")
    for row in means[means.low.notna()].itertuples():
        vertical_interval(axis, row.level, row.low, row.high, color=COLOUR, linewidth=1.6)
    axis.set_ylim(bottom, top + 0.3 * (top - bottom))  # room for what the rule says
    if base.notna().any():
        axis.axhline(
            base.mean(), color=BASELINE_COLOUR, linestyle="--", linewidth=1, zorder=1,
            label="baseline",
        )  # fmt: skip


def _choice(
    axis: Axes, table: pd.DataFrame, experiment: str, sweep: SweepSpec, measure: str
) -> None:
    """Mark the chosen level, or say why none is identifiable."""
    rows = table[(table.experiment == experiment) & (table.measure == measure)]
    if rows.empty or pd.isna(rows.iloc[0]["n"]):
        return
    row: Any = rows.iloc[0]
    if row.identifiable:
        text = f"{sweep.rule} {row.chosen:g} ({row.stability:.0%} of resamples)"
        axis.axvline(row.chosen, color=CHOSEN_COLOUR, linewidth=1.2, zorder=1, ymax=0.77)
    else:
        text = textwrap.fill(f"{sweep.rule} not identifiable: {row.why_not}", 46)
    axis.text(
        0.5, 0.98, text, transform=axis.transAxes, ha="center", va="top", fontsize="x-small",
        color=CHOSEN_COLOUR,
    )  # fmt: skip

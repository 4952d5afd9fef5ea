"""M2's paired differences to the baseline: a forest plot for each experiment that learns."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from refblend.study.report.m2.labels import arm_colour, arm_labels, level_name
from refblend.study.report.m2.study import REPORT, M2Study, leads, learns
from refblend.study.report.m2.words import Tables
from refblend.study.report.plotting.common import (
    Drawn,
    horizontal_interval,
    no_data,
    value_limits,
)
from refblend.study.report.plotting.style import BASELINE_COLOUR, COLUMN
from refblend.study.runs.measures import label

AXIS = "difference to the baseline"
INTERVALS = (
    "Thick bars: Student's 95 % interval of the mean paired difference; thin bars: the same for "
    "all comparisons of the experiment together (Bonferroni); small strokes: single seeds; an "
    "arrow head: the bar goes on beyond the panel. Filled marks: told apart from the baseline by "
    "the rule of the tables (adjusted p and interval); open marks: not. n: pairs of seeds."
)


@dataclass(frozen=True)
class Row:
    """A line of a forest plot."""

    arm: str
    label: str
    seeds: pd.Series
    """Paired differences to the baseline."""
    numbers: pd.Series
    """Its row of the experiment's summary."""


def forest_rows(study: M2Study, tables: Tables, experiment: str, arms: Sequence[str]) -> list[Row]:
    """Rows of some arms; one whose arm has no comparison is left out."""
    table = tables[f"{experiment}_summary"]
    measure, labels = study.experiments[experiment].endpoint, arm_labels(study, experiment)
    table = table[(table.measure == measure) & table["diff"].notna()].set_index("arm")
    values = study.endpoint(experiment)
    rows = []
    for arm in arms:
        if arm in table.index:
            seeds = values[arm] - values[study.baseline(experiment, arm)]
            rows.append(Row(arm, labels[arm], seeds.dropna(), table.loc[arm]))
    return rows


def forest_panel(axis: Axes, study: M2Study, rows: Sequence[Row], labels: Sequence[str]) -> None:
    """Draw rows at the places of their labels, the first above; an absent one says so."""
    axis.axvline(0, color=BASELINE_COLOUR, linewidth=0.8, linestyle="--", zorder=1)
    axis.grid(visible=False, axis="y")
    axis.set_yticks(range(len(labels)), labels)
    axis.set_ylim(max(len(labels), 1) - 0.4, -0.6)
    side = axis.get_yaxis_transform()
    drawn = {row.label for row in rows}
    for place, name in enumerate(labels):
        if name not in drawn:
            axis.text(
                0.5, place, "no pair of runs", transform=side, ha="center", va="center",
                color="#595959", fontsize="x-small",
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0},
            )  # fmt: skip
    for row in rows:
        place, numbers = list(labels).index(row.label), row.numbers
        colour = arm_colour(study, row.arm)
        bars = (("diff_family", 0.8), ("diff", 2.4))
        for name, width in bars:
            low, high = numbers[f"{name}_low"], numbers[f"{name}_high"]
            if np.isfinite(low):
                horizontal_interval(axis, place, low, high, color=colour, linewidth=width)
        told = numbers["verdict"] in ("higher", "lower")
        axis.plot(
            numbers["diff"], place, "o", color=colour, markersize=4.5, zorder=5,
            markerfacecolor=colour if told else "white",
        )  # fmt: skip
        axis.plot(row.seeds, np.full(len(row.seeds), place + 0.27), "|", color="#404040",
                  markersize=4, markeredgewidth=0.7)  # fmt: skip
        axis.text(1.04, place, f"n = {numbers['pairs']}", transform=side, va="center",
                  fontsize="x-small", color="#404040")  # fmt: skip


def forest_limits(rows: Sequence[Row]) -> tuple[float, float] | None:
    """Limits that hold all seeds, zero, and the intervals as far as they are near."""
    seeds = [value for row in rows for value in row.seeds]
    bounds = [row.numbers[f"diff_{side}"] for row in rows for side in ("low", "high")]
    return value_limits([*seeds, 0.0], bounds) if seeds else None


def _explain(figure: Figure) -> None:
    """Legend of the marks of a forest plot."""
    line: dict[str, Any] = {"color": "#404040"}
    figure.legend(
        handles=[
            Line2D([], [], linewidth=2.4, label="95 % interval", **line),
            Line2D([], [], linewidth=0.8, label="of all comparisons together", **line),
            Line2D([], [], linestyle="none", marker="|", markersize=5, label="seeds", **line),
        ],
        loc="outside upper center",
        ncols=3,
    )


@REPORT.figure("{experiment}_forest", each=learns, preview=leads)
def forest(study: M2Study, tables: Tables, experiment: str) -> Drawn:
    """Every arm against its baseline, the levels of a facet side by side."""
    labels, facets = arm_labels(study, experiment), study.facets(experiment)
    rows = {level: forest_rows(study, tables, experiment, arms) for level, arms in facets.items()}
    shared = len(set(labels.values())) < len(labels)  # one label for an arm of each facet
    places = {
        level: list(dict.fromkeys(labels[arm] for arm in (labels if shared else arms)))
        for level, arms in facets.items()
    }
    limits = forest_limits([row for part in rows.values() for row in part])
    tallest = max(3, *[len(part) for part in places.values()], 0)
    columns = max(1, len(facets))
    figure, axes = plt.subplots(
        1, columns, figsize=(2 * COLUMN if columns > 1 else 1.4 * COLUMN, 0.9 + 0.24 * tallest),
        sharex=True, sharey=shared, squeeze=False,
    )  # fmt: skip
    for axis, (level, part) in zip(axes.flat, rows.items(), strict=False):
        if limits:
            axis.set_xlim(*limits)
        forest_panel(axis, study, part, places[level])
        facet = study.experiments[experiment].facet
        axis.set(title=f"{facet} {level_name(level)}" if level else "", xlabel=AXIS)
    if not labels:
        no_data(axes[0, 0], f"no arms of {experiment} at this scale")
    _explain(figure)
    baselines = ", ".join(study.baselines(experiment))
    return figure, (
        f"Experiment {experiment}: mean paired difference to the baseline ({baselines}) in "
        f"{label(study.experiments[experiment].endpoint)}. {INTERVALS} {study.origin(experiment)}"
    )

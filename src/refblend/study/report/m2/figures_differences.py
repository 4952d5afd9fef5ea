"""M2's paired differences to the baseline: forest plots, and H's against the judge's quality."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from refblend.study.layout import JUDGES
from refblend.study.report.m2.figures_data import (
    PLACEMENT_NAMES,
    M2Data,
    in_words,
    judge_of,
    strategy_colour,
    strategy_of,
)
from refblend.study.report.plotting.common import (
    Drawn,
    horizontal_interval,
    no_data,
    one_legend,
    value_limits,
    vertical_interval,
)
from refblend.study.report.plotting.style import BASELINE_COLOUR, COLUMN
from refblend.study.stats.statistics import Interval, student_interval

MEASURE = "test_greedy"
AXIS = "difference in test accuracy"
INTERVALS = (
    "Thick bars: Student's 95 % interval of the mean paired difference; thin bars: the same for "
    "all comparisons of the experiment together (Bonferroni); small strokes: single seeds; an "
    "arrow head: the bar goes on beyond the panel. Filled marks: told apart from the baseline by "
    "the rule of the tables (adjusted p and interval); open marks: not. n: pairs of seeds."
)


Point = tuple[str, pd.DataFrame, Interval]
"""An arm, its seeds (columns auc, gain), and the interval of its mean gain."""

NAME_WIDTH = 0.24
"""Room that a judge's name needs, as a share of the panel."""


@dataclass(frozen=True)
class Row:
    """A line of a forest plot."""

    arm: str
    label: str
    seeds: pd.Series
    """Paired differences to the baseline."""
    numbers: pd.Series
    """Its row of the experiment's summary."""


def forest_rows(
    data: M2Data, experiment: str, arms: Sequence[str], labels: Sequence[str]
) -> list[Row]:
    """Rows of some arms; one whose arm has no comparison is left out."""
    table = data.tables[f"{experiment}_summary"]
    table = table[(table.measure == MEASURE) & table["diff"].notna()].set_index("arm")
    values = data.values(experiment, MEASURE)
    rows = []
    for arm, label in zip(arms, labels, strict=True):
        if arm in table.index:
            seeds = values[arm] - values[data.study.baseline(experiment, arm)]
            rows.append(Row(arm, label, seeds.dropna(), table.loc[arm]))
    return rows


def forest_panel(axis: Axes, rows: Sequence[Row], labels: Sequence[str], n: str = "n = ") -> None:
    """Draw rows at the places of their labels, the first above; an absent one says so."""
    axis.axvline(0, color=BASELINE_COLOUR, linewidth=0.8, linestyle="--", zorder=1)
    axis.grid(visible=False, axis="y")
    axis.set_yticks(range(len(labels)), labels)
    axis.set_ylim(max(len(labels), 1) - 0.4, -0.6)
    side = axis.get_yaxis_transform()
    drawn = {row.label for row in rows}
    for place, label in enumerate(labels):
        if label not in drawn:
            axis.text(
                0.5, place, "no pair of runs", transform=side, ha="center", va="center",
                color="#595959", fontsize="x-small",
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0},
            )  # fmt: skip
    for row in rows:
        place, colour, numbers = (
            list(labels).index(row.label),
            strategy_colour(row.arm),
            row.numbers,
        )
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
        axis.text(1.04, place, f"{n}{numbers['pairs']}", transform=side, va="center",
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


def blending_forest(data: M2Data) -> Drawn:
    """A: every arm under per_token and terminal, beside each other."""
    panels = {place: data.treated("A", place) for place in ("per_token", "terminal")}
    labels = list(dict.fromkeys(strategy_of(arm) for arms in panels.values() for arm in arms))
    rows = {
        place: forest_rows(data, "A", arms, [strategy_of(arm) for arm in arms])
        for place, arms in panels.items()
    }
    limits = forest_limits([row for part in rows.values() for row in part])
    figure, axes = plt.subplots(
        1, 2, figsize=(2 * COLUMN, 0.9 + 0.24 * max(3, len(labels))), sharex=True, sharey=True
    )
    for axis, (place, part) in zip(axes, rows.items(), strict=True):
        if limits:
            axis.set_xlim(*limits)
        forest_panel(axis, part, labels)
        if not labels:
            no_data(axis, "no arms of A at this scale")
        axis.set(title=f"placement {PLACEMENT_NAMES[place]}", xlabel=AXIS)
    _explain(figure)
    return figure, (
        "Experiment A: mean paired difference to the baseline off in greedy accuracy on the test "
        f"set, under both placements of the judge's score. {INTERVALS} {data.origin('A')}"
    )


def other_forests(data: M2Data) -> Drawn:
    """B, C, G, H: every arm against its baseline."""
    names = ("B", "C", "G", "H")
    labels = {name: [in_words(arm) for arm in data.treated(name)] for name in names}
    rows = {name: forest_rows(data, name, data.treated(name), labels[name]) for name in names}
    limits = forest_limits([row for part in rows.values() for row in part])
    tallest = [max(3, len(labels[a]), len(labels[b])) for a, b in (("B", "C"), ("G", "H"))]
    figure, axes = plt.subplots(
        2, 2, figsize=(2 * COLUMN, 1.4 + 0.22 * sum(tallest)), sharex=True, height_ratios=tallest
    )
    for axis, name in zip(axes.flat, names, strict=True):
        if limits:
            axis.set_xlim(*limits)
        forest_panel(axis, rows[name], labels[name], "")
        axis.tick_params(axis="y", labelsize="x-small")
        spec = data.study.experiments.get(name)
        axis.set_title(f"{name}: {spec.title}" if spec else f"{name}: not declared")
        if not labels[name]:
            no_data(axis, f"no arms of {name} at this scale")
    for axis in axes[-1]:
        axis.set_xlabel(AXIS)
    _explain(figure)
    return figure, (
        "Experiments B, C, G, H: mean paired difference to the baseline in greedy accuracy on the "
        "test set (baseline off; under GAE: gae_off). The number at the right is n. "
        f"{INTERVALS} {data.origin(*names)}"
    )


def judge_quality(data: M2Data) -> Drawn:
    """H: difference to off against the judge's AUC in training, for linear and constant weight."""
    arms = [arm for arm in data.treated("H", "terminal") if _kind(arm)]
    auc, accuracy = data.values("H", "judge_auc"), data.values("H", MEASURE)
    points: list[Point] = []
    for arm in arms:
        gain = accuracy[arm] - accuracy[data.study.baseline("H", arm)]
        seeds = pd.DataFrame({"auc": auc[arm], "gain": gain}).dropna()
        if len(seeds):
            points.append((arm, seeds, student_interval(seeds["gain"])))
    figure, axis = plt.subplots(figsize=(COLUMN, 0.95 * COLUMN))
    axis.axhline(0, color=BASELINE_COLOUR, linewidth=0.8, linestyle="--", zorder=1)
    axis.set(xlabel="judge's AUC on the training responses", ylabel=f"{AXIS}\nto off")
    seeds_all = [value for _, seeds, _ in points for value in seeds["gain"]]
    limits = value_limits([*seeds_all, 0.0], [b for *_, i in points for b in (i.low, i.high)])
    if points and limits:
        axis.set_ylim(*limits)
    else:
        no_data(axis)
    shift = _shift([seeds["auc"].mean() for _, seeds, _ in points])
    for arm, seeds, interval in points:
        kind = _kind(arm)
        colour, marker = strategy_colour(arm), "o" if kind == "linear" else "s"
        place = seeds["auc"].mean() + (shift if kind == "constant" else -shift)
        if np.isfinite(interval.low):
            vertical_interval(axis, place, interval.low, interval.high, color=colour, linewidth=1.6)
        axis.plot(seeds["auc"], seeds["gain"], marker, color=colour, markersize=3, alpha=0.6,
                  markeredgewidth=0)  # fmt: skip
        axis.plot(place, interval.estimate, marker, color=colour, markersize=5, zorder=5,
                  label=f"{kind} weight")  # fmt: skip
    _name_judges(axis, points)
    one_legend(figure, [axis])
    return figure, (
        "Experiment H: mean paired difference to off in greedy accuracy on the test set against "
        "the judge's AUC on the training responses (mean over steps and seeds), for a weight that "
        "follows the entropy (linear) and a constant one, placement terminal. Bars: Student's 95 % "
        "interval, an arrow head where it goes on beyond the panel; small marks: seeds. Where two "
        f"means stand at almost one AUC they are set apart. {data.origin('H')}"
    )


def _kind(arm: str) -> str:
    """``linear`` or ``constant``; empty for other arms."""
    kinds = [kind for kind in ("linear", "constant") if kind in arm.split("_")]
    return kinds[0] if kinds else ""


def _shift(places: Sequence[float]) -> float:
    """Half the distance that keeps two marks at one place apart."""
    return max(0.02 * (max(places) - min(places)), 0.002) if places else 0.0


def _name_judges(axis: Axes, points: Sequence[Point]) -> None:
    """The judges' names above the panel, each with a line to the mean AUC of its arms."""
    means = {
        judge: float(np.mean([seeds["auc"].mean() for arm, seeds, _ in points if arm in arms]))
        for judge in JUDGES
        if (arms := [arm for arm, *_ in points if judge_of(arm) == judge])
    }
    left, right = axis.get_xlim()
    place = -np.inf
    for number, (judge, mean) in enumerate(sorted(means.items(), key=lambda item: item[1])):
        room = 1.0 - NAME_WIDTH * (len(means) - 1 - number)
        place = max(min((mean - left) / (right - left), room), place + NAME_WIDTH)
        axis.annotate(
            judge, (mean, 1.0), xycoords=axis.get_xaxis_transform(), xytext=(place, 1.06),
            textcoords="axes fraction", ha="center", va="bottom", fontsize="small",
            arrowprops={"arrowstyle": "-", "linewidth": 0.5, "color": "#808080", "shrinkB": 0},
        )  # fmt: skip

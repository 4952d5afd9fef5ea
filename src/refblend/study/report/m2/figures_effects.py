"""M2's differences to the baseline: of every arm, along a sweep, and by the judge's quality."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from refblend.study.design.measures import MEASURES, label
from refblend.study.design.spec import SweepSpec
from refblend.study.report.m2.labels import arm_colour, arm_labels, level_name
from refblend.study.report.m2.levels import level_measures, levels_of, sweep_values
from refblend.study.report.m2.study import REPORT, M2Study, leads, learns, sweeps, varies_judge
from refblend.study.report.plotting.common import (
    BARS,
    INK,
    Drawn,
    Mark,
    bars_of,
    categories,
    draw_marks,
    mark_limits,
    no_data,
    one_legend,
    panels,
)
from refblend.study.report.plotting.style import BASELINE_COLOUR, COLUMN, PALETTE, WRONG_COLOUR
from refblend.study.report.registry import Tables
from refblend.study.stats.power import Design, least_detectable
from refblend.study.stats.statistics import student_interval

INTERVALS = f"{BARS} Filled marks: decided by the rule of the tables; open marks: undecided."
SHORT = {
    "val_best": "best validation accuracy",
    "val_auc": "validation accuracy, mean of curve",
    "final_return": "training return, last 5 steps",
}
"""Labels of measures that are too long for a panel's title."""

RULES = {
    "knee": "the knee is the smallest level within one standard error of the best",
    "pivot": "the pivot is the last level before the difference to the baseline changes its sign",
}
MISSED_COLOUR = "#e4e4e4"
"""Of differences that the seeds cannot detect."""

NAME_WIDTH = 0.24
"""Room that a judge's name needs, as a share of the panel."""


@REPORT.figure("{experiment}_forest", each=learns, preview=leads)
def forest(study: M2Study, tables: Tables, experiment: str) -> Drawn:
    """Every arm against its baseline, the levels of a facet side by side."""
    labels, facets = arm_labels(study, experiment), study.facets(experiment)
    spec, shared = study.experiments[experiment], len(set(labels.values())) < len(labels)
    names = {
        level: list(dict.fromkeys(labels[arm] for arm in (labels if shared else arms)))
        for level, arms in facets.items()
    }
    table = tables[f"{experiment}_summary"]
    table = table[(table.measure == spec.endpoint) & table["diff"].notna()].set_index("arm")
    values, marks, missed = study.endpoint(experiment), {}, {}
    for arm in (arm for arm in labels if arm in table.index):
        row, colour = table.loc[arm], arm_colour(study, arm)
        level = next(level for level, arms in facets.items() if arm in arms)
        seeds = (values[arm] - values[study.baseline(experiment, arm)]).dropna()
        looks: dict[str, Any] = {"colour": colour, "filled": row["verdict"] != "undecided"}
        place = names[level].index(labels[arm])
        missed[arm] = undetectable(seeds, len(study.family(experiment).pairs))
        marks[arm] = Mark(place, row["diff"], bars_of(row), seeds, beside=0.27, **looks)
    size = (
        2 * COLUMN if len(facets) > 1 else 1.4 * COLUMN,
        0.9 + 0.24 * max(3, *map(len, [*names.values(), ""])),
    )
    figure, axes = panels(len(facets), len(facets), figsize=size, sharex=True, sharey=shared)
    for axis, (level, arms) in zip(axes, facets.items(), strict=False):
        categories(axis, names[level])
        drawn = {arm: marks[arm] for arm in arms if arm in marks}
        if drawn:
            draw_marks(axis, list(drawn.values()), mark_limits(list(marks.values())))
        for place in set(range(len(names[level]))) - {mark.place for mark in drawn.values()}:
            no_data(axis, "no pair of runs", place=place, fontsize="x-small")
        for arm, mark in drawn.items():
            reach = missed[arm]
            axis.hlines(mark.place, -reach, reach, color=MISSED_COLOUR, linewidth=7, zorder=0)
            n, side = f"n = {table.loc[arm, 'pairs']}", axis.get_yaxis_transform()
            axis.text(
                1.04, mark.place, n, transform=side, va="center", fontsize="x-small", color=INK
            )
        axis.set_title(f"{spec.facet} {level_name(level)}" if level else "")
        axis.set_xlabel("difference to the baseline")
    if not labels:
        no_data(axes[0], f"no arms of {experiment} at this scale")
    bar = [("95 % interval", 2.4, ""), ("of all comparisons together", 0.8, ""), ("seeds", 0, "|")]
    handles = [
        Line2D([], [], color=INK, linewidth=w, marker=m, markersize=5, label=t) for t, w, m in bar
    ]
    handles.append(Line2D([], [], color=MISSED_COLOUR, linewidth=7, label="not detectable"))
    one_legend(figure, (), ncols=2, extra=handles)
    return figure, (
        f"Experiment {experiment}: mean paired difference to the baseline "
        f"({', '.join(study.baselines(experiment))}) in {label(spec.endpoint)}. {INTERVALS} "
        "Grey: differences that Student's test misses in more than one study of five with so many "
        f"seeds, adjusted for all comparisons. {study.origin(experiment)}"
    )


def undetectable(differences: pd.Series, family: int) -> float:
    """The least true difference that paired seeds detect with a power of 80 %, at 0.05 / family;
    0 where nothing varies."""
    deviation = float(differences.std(ddof=1)) if len(differences) > 1 else 0.0
    if deviation == 0:
        return 0.0
    return least_detectable(Design(deviation, True, 0.05 / max(1, family)), len(differences), 0.8)


@REPORT.figure("{experiment}_sensitivity", each=sweeps)
def sensitivity(study: M2Study, tables: Tables, experiment: str) -> Drawn:
    """Every measure of a sweep against its parameter."""
    sweep = study.sweep(experiment)
    name, levels = sweep.key.rpartition(".")[2], levels_of(study, experiment)
    figure, axes = panels(4, 2, sharex=True)
    for axis, measure in zip(axes, level_measures(study, experiment), strict=False):
        axis.set(title=SHORT.get(measure, label(measure)), ylabel=MEASURES[measure].unit)
        axis.set_xlabel(name if axis in axes[2:] else "")
        if levels:
            _sweep_panel(axis, study, tables, experiment, measure)
            _chosen(axis, tables["knee_pivot"], experiment, sweep, measure)
        else:
            no_data(axis, f"no arms of {experiment} at this scale")
    one_legend(figure, axes)
    places = {study.resolved[arm].placement for arm in levels.values()}
    where = " and ".join(level_name(place) for place in sorted(places)) or "none"
    return figure, (
        f"Experiment {experiment}: each measure against {name}, placement {where}, all else equal. "
        "Bars: Student's 95 % interval, an arrow head where it goes on beyond the panel; thin "
        "lines: seeds; grey: mean of the baseline. Vertical "
        f"line: the {sweep.rule} with the share of resampled seeds that choose it; "
        f"{RULES[sweep.rule]}. Not identifiable where the interval of that choice is the whole "
        f"range, or too little was run. {study.origin(experiment)}"
    )


def _sweep_panel(axis: Axes, study: M2Study, tables: Tables, experiment: str, measure: str) -> None:
    """One measure: seeds, means and baseline."""
    values, base = sweep_values(study, experiment, measure)
    means = tables["levels"].query("experiment == @experiment and measure == @measure")
    levels = list(values.columns)
    gap = min(np.diff(levels)) if len(levels) > 1 else 1.0
    axis.set_xticks(levels)
    axis.set_xlim(levels[0] - 0.4 * gap, levels[-1] + 0.4 * gap)
    marks = [
        Mark(row.level, row.mean, ((row.low, row.high, 1.6),), colour=PALETTE[0], label="mean")
        for row in means[means["mean"].notna()].itertuples()
    ]
    seeds = Mark(np.nan, base.mean(), seeds=values.to_numpy().ravel())
    limits = mark_limits([*marks, seeds], zero=False)
    if not marks or limits is None:
        no_data(axis)
        return
    draw_marks(axis, marks, limits, upright=True, zero=False)
    axis.plot(levels, values.T, ".-", color=PALETTE[0], linewidth=0.5, alpha=0.5, markersize=2)
    axis.plot(means.level, means["mean"], color=PALETTE[0])
    bottom, top = limits
    axis.set_ylim(bottom, top + 0.3 * (top - bottom))  # room for what the rule says
    if base.notna().any():
        style: dict[str, Any] = {
            "color": BASELINE_COLOUR,
            "linestyle": "--",
            "linewidth": 1,
            "zorder": 1,
        }
        axis.axhline(base.mean(), label="baseline", **style)


def _chosen(
    axis: Axes, table: pd.DataFrame, experiment: str, sweep: SweepSpec, measure: str
) -> None:
    """Mark the chosen level, or say why none is identifiable."""
    rows = table.query("experiment == @experiment and measure == @measure")
    for row in rows[rows.n > 0].itertuples():
        if row.identifiable:
            text = f"{sweep.rule} {row.chosen:g} ({row.stability:.0%} of resamples)"
            axis.axvline(row.chosen, color=WRONG_COLOUR, linewidth=1.2, zorder=1, ymax=0.77)
        else:
            text = f"{sweep.rule} not identifiable"
        style = {"ha": "center", "va": "top", "fontsize": "x-small", "color": WRONG_COLOUR}
        axis.text(0.5, 0.98, text, transform=axis.transAxes, **style)


@REPORT.figure("{experiment}_judge_quality", each=varies_judge)
def judge_quality(study: M2Study, experiment: str) -> Drawn:
    """Difference to the baseline against the judge's AUC in training, by strategy."""
    auc, values = study.wide(experiment, "judge_auc"), study.endpoint(experiment)
    gains = {
        arm: (values[arm] - values[study.baseline(experiment, arm)])[auc[arm].notna()].dropna()
        for arm in study.subjects(experiment)
    }
    arms = {arm: study.resolved[arm] for arm, gain in gains.items() if len(gain)}
    means = {arm: auc.loc[gains[arm].index, arm].mean() for arm in arms}
    strategies = list(dict.fromkeys(arm.strategy for arm in arms.values()))
    # Two marks of almost one AUC are set apart.
    shift = max(0.02 * (max(means.values()) - min(means.values())), 0.002) if means else 0.0
    marks = []
    for name, arm in arms.items():
        number, interval = strategies.index(arm.strategy), student_interval(gains[name])
        place = means[name] + (2 * number - len(strategies) + 1) * shift
        looks: dict[str, Any] = {"colour": arm_colour(study, name), "shape": "osD^v"[number % 5]}
        bars = ((interval.low, interval.high, 1.6),)
        text = f"{arm.strategy} weight"
        marks.append(Mark(place, interval.estimate, bars, gains[name], 0.0, label=text, **looks))
    figure, (axis,) = panels(1, 1, figsize=(COLUMN, 0.95 * COLUMN))
    draw_marks(axis, marks, upright=True)
    axis.set(xlabel="judge's AUC on the training responses", ylabel="difference to the baseline")
    judges = pd.Series(means).groupby(lambda name: arms[name].judge).mean().sort_values()
    _name_judges(axis, judges)
    one_legend(figure, [axis])
    return figure, (
        f"Experiment {experiment}: mean paired difference to the baseline in "
        f"{label(study.experiments[experiment].endpoint)} against the judge's AUC on the training "
        "responses (mean over steps and seeds), of the arms that its contrasts compare, by "
        "strategy. Bars: Student's 95 % interval, an arrow head where it goes on beyond the panel; "
        "small strokes: seeds. Where two means have almost one AUC they are set apart. "
        f"{study.origin(experiment)}"
    )


def _name_judges(axis: Axes, judges: pd.Series) -> None:
    """The judges' names above the panel, each with a line to the mean AUC of its arms."""
    (left, right), place = axis.get_xlim(), -np.inf
    for after, (judge, mean) in zip(range(len(judges))[::-1], judges.items(), strict=True):
        room = min((mean - left) / (right - left), 1.0 - NAME_WIDTH * after)
        place = max(room, place + NAME_WIDTH)
        axis.annotate(
            judge, (mean, 1.0), xycoords=axis.get_xaxis_transform(), xytext=(place, 1.06),
            textcoords="axes fraction", ha="center", va="bottom", fontsize="small",
            arrowprops={"arrowstyle": "-", "linewidth": 0.5, "color": "#808080", "shrinkB": 0},
        )  # fmt: skip

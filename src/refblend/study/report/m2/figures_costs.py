"""M2's figures of cost: time, memory and throughput by two factors, and hidden judge time."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from refblend.study.report.m2.labels import in_words, level_name
from refblend.study.report.m2.study import REPORT, M2Study, measures_costs, varies_overlap
from refblend.study.report.m2.words import Tables
from refblend.study.report.plotting.common import (
    Drawn,
    no_data,
    one_legend,
    value_limits,
    vertical_interval,
)
from refblend.study.report.plotting.style import COLUMN, LEVEL_COLOURS
from refblend.study.runs.measures import label
from refblend.study.stats.statistics import student_interval

HOW = (
    "Marks: mean over seeds of a run's median over its steps after the first (memory: its peak); "
    "bars: Student's 95 % interval, an arrow head where it goes on beyond the panel; dots: seeds. "
    "Jobs ran alone on the machine."
)


@REPORT.figure("{experiment}_costs", each=measures_costs)
def costs(study: M2Study, tables: Tables, experiment: str) -> Drawn:
    """Costs by the experiment's factors, and the judge's time that overlapping hides."""
    spec, table = study.experiments[experiment], tables[f"{experiment}_costs"]
    hides = varies_overlap(spec)
    measures = ["step_seconds", "judge_seconds"]
    measures = measures if hides else ["step_seconds", "memory_gb", "throughput"]
    first, *others = spec.factors
    figure, axes = plt.subplots(1, 3, figsize=(2 * COLUMN, 0.85 * COLUMN))
    place = others[0] if others and not hides else first
    line = first if place != first else (others[0] if others else None)
    for axis, measure in zip(axes, measures, strict=False):
        part = table[table.measure == measure]
        texts = part.assign(
            place=part[place].map(_level),
            line=part[line].map(lambda value: f"{in_words(line)} {_level(value)}") if line else "",
        )
        _by_factors(axis, texts, study.wide(experiment, measure))
        axis.set(xlabel=in_words(place), ylabel=label(measure))
    if hides:
        _hidden(axes[2], tables[f"{experiment}_hidden"])
    one_legend(figure, axes[:2] if hides else axes)
    shown = "time of a training step and of the judge in it" if hides else "cost of a training step"
    right = (
        " Right: share of the judge's time that overlapping takes out of the step, (serial − "
        "overlapped step time) ÷ serial judge time. Beyond 0 and 1 is noise or more than the "
        "judge's own time."
    )
    return figure, (
        f"Experiment {experiment}: {shown}, by {in_words(place)}"
        + (f" and {in_words(line)} (colour). " if line else ". ")
        + f"{HOW}{right if hides else ''} {study.origin(experiment)}"
    )


def _level(value: object) -> str:
    """A factor's level for a tick or the legend."""
    if isinstance(value, bool | np.bool_):
        return "on" if value else "off"
    return level_name(str(value))


def _by_factors(axis: Axes, table: pd.DataFrame, values: pd.DataFrame) -> None:
    """Arms at the place and in the colour of their two factors.

    Args:
        axis: the panel.
        table: columns arm, place, line (texts), mean, low, high.
        values: one row per seed, one column per arm.
    """
    table = table[table["mean"].notna()]
    if table.empty:
        no_data(axis)
        return
    places = list(dict.fromkeys(table.place))
    lines = list(dict.fromkeys(table.line))
    axis.set_xticks(range(len(places)), places)
    axis.set_xlim(-0.5, len(places) - 0.5)
    axis.grid(visible=False, axis="x")
    shown = [value for arm in table.arm for value in values[arm]]
    limits = value_limits(shown, [*table.low, *table.high])
    if limits:
        axis.set_ylim(*limits)
    for number, line in enumerate(lines):
        part = table[table.line == line]
        shift = 0.2 * (number - (len(lines) - 1) / 2)
        where = np.array([places.index(place) + shift for place in part.place])
        colour, marker = LEVEL_COLOURS[number % len(LEVEL_COLOURS)], "os^"[number % 3]
        axis.plot(
            where, part["mean"], color=colour, marker=marker, markersize=4.5, linewidth=1,
            label=line, zorder=3,
        )  # fmt: skip
        for place, row in zip(where, part.itertuples(), strict=True):
            _spread(axis, place, values[row.arm], (row.low, row.high), colour)


def _spread(
    axis: Axes, place: float, seeds: Sequence[float], bounds: tuple[float, float], colour: str
) -> None:
    """Interval and seeds beside a mark."""
    if np.isfinite(bounds[0]):
        vertical_interval(axis, place, *bounds, color=colour, linewidth=1.2, alpha=0.8)
    axis.plot(np.full(len(seeds), place + 0.07), seeds, ".", color=colour, markersize=3, alpha=0.6)


def _hidden(axis: Axes, table: pd.DataFrame) -> None:
    """Share of the judge's time that is hidden, by pool."""
    table = table[table.hidden.notna()]
    axis.set_ylabel("judge time hidden (share)")
    if table.empty:
        no_data(axis)
        return
    pools = list(dict.fromkeys(table.pool))
    axis.set_xticks(range(len(pools)), [level_name(pool) for pool in pools])
    axis.set_xlim(-0.5, len(pools) - 0.5)
    axis.grid(visible=False, axis="x")
    intervals = {pool: student_interval(table[table.pool == pool]["hidden"]) for pool in pools}
    bounds = [bound for i in intervals.values() for bound in (i.low, i.high)]
    limits = value_limits([*table.hidden, 0.0], bounds)
    if limits:
        axis.set_ylim(*limits)
    axis.axhline(0, color="#595959", linewidth=0.8, linestyle="--", zorder=1)
    for place, pool in enumerate(pools):
        interval = intervals[pool]
        axis.plot(place, interval.estimate, "D", color="#333333", markersize=4.5)
        seeds = table[table.pool == pool]["hidden"]
        _spread(axis, place, seeds, (interval.low, interval.high), "#333333")

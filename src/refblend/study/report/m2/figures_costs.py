"""M2's figures of cost: E's lengths, F's placement and overlap of the judge."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from refblend.study.report.m2.figures_data import M2Data
from refblend.study.report.plotting.common import (
    Drawn,
    no_data,
    one_legend,
    value_limits,
    vertical_interval,
)
from refblend.study.report.plotting.style import COLUMN, LEVEL_COLOURS
from refblend.study.stats.statistics import student_interval

LABELS = {
    "step_seconds": "step time (s)",
    "memory_gb": "peak memory (GiB)",
    "throughput": "throughput (tokens/s)",
    "judge_seconds": "judge time a step (s)",
}
POOLS = {"global_pool": "shared pool", "judge_pool": "dedicated pool"}
HOW = (
    "Marks: mean over seeds of a run's median over its steps after the first (memory: its peak); "
    "bars: Student's 95 % interval, an arrow head where it goes on beyond the panel; dots: seeds. "
    "Jobs ran alone on the machine."
)


def lengths(data: M2Data) -> Drawn:
    """E: step time, memory and throughput against max_model_len, by length."""
    measures = ("step_seconds", "memory_gb", "throughput")
    table = data.tables["E_lengths"]
    figure, axes = plt.subplots(1, 3, figsize=(2 * COLUMN, 0.85 * COLUMN))
    for axis, measure in zip(axes, measures, strict=True):
        part = table[table.measure == measure]
        texts = part.assign(
            place=part.max_model_len.astype(str), line=part.length.astype(str) + " tokens"
        )
        _by_factors(axis, texts, data.values("E", measure))
        axis.set(xlabel="max_model_len", ylabel=LABELS[measure])
    one_legend(figure, axes)
    return figure, (
        "Experiment E: cost of a training step against max_model_len for two limits of prompt and "
        f"of response length (colour). {HOW} {data.origin('E')}"
    )


def placement_of_scorer(data: M2Data) -> Drawn:
    """F: step time and judge time by pool and overlap, and the judge's time that is hidden."""
    table = data.tables["F_overlap"]
    figure, axes = plt.subplots(1, 3, figsize=(2 * COLUMN, 0.85 * COLUMN))
    for axis, measure in zip(axes, ("step_seconds", "judge_seconds"), strict=False):
        part = table[table.measure == measure]
        texts = part.assign(
            place=part.pool.map(POOLS).fillna(part.pool),
            line=part.overlap.map({True: "overlapped", False: "serial"}),
        )
        _by_factors(axis, texts, data.values("F", measure))
        axis.set_ylabel(LABELS[measure])
    _hidden(axes[2], data.tables["F_hidden"])
    one_legend(figure, axes[:2])
    return figure, (
        "Experiment F: time of a training step and of the judge in it, by the pool that the judge "
        "runs in and by whether it runs beside the log-prob passes (overlapped) or before them "
        "(serial); right: share of the judge's time that overlapping takes out of the step, "
        "(serial − overlapped step time) ÷ serial judge time. Beyond 0 and 1 is noise or more than "
        f"the judge's own time saved. {HOW} {data.origin('F')}"
    )


def _by_factors(axis: Axes, table: pd.DataFrame, values: pd.DataFrame) -> None:
    """Arms at the place and in the colour of their two knobs.

    Args:
        axis: the panel.
        table: columns arm, place, line (texts), mean, low, high.
        values: one row a seed, one column an arm.
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
    axis.set_xticks(range(len(pools)), [POOLS.get(pool, pool) for pool in pools])
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

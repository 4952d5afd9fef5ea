"""M2's figures of cost: time, memory and throughput by two factors, and hidden judge time."""

from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from refblend.study.design.measures import label
from refblend.study.report.m2.labels import in_words, level_name
from refblend.study.report.m2.study import REPORT, M2Study, measures_costs, varies_overlap
from refblend.study.report.plotting.common import (
    Drawn,
    Mark,
    categories,
    draw_marks,
    one_legend,
    panels,
)
from refblend.study.report.plotting.style import COLUMN, LEVEL_COLOURS
from refblend.study.report.registry import Tables
from refblend.study.stats.statistics import student_interval

HOW = (
    "Marks: mean over seeds of a run's median over its steps after the first (memory: its peak); "
    "bars: Student's 95 % interval, an arrow head where it goes on beyond the panel; strokes: "
    "seeds. Jobs ran alone on the machine."
)
HIDDEN = (
    " Right: share of the judge's time that overlapping takes out of the step, (serial − "
    "overlapped step time) ÷ serial judge time. Beyond 0 and 1 is noise or more than the "
    "judge's own time."
)


@REPORT.figure("{experiment}_costs", each=measures_costs)
def costs(study: M2Study, tables: Tables, experiment: str) -> Drawn:
    """Costs by the experiment's factors, and the judge's time that overlapping hides."""
    spec, table = study.experiments[experiment], tables[f"{experiment}_costs"]
    hides = varies_overlap(spec)
    measures = ["step_seconds", "judge_seconds"]
    measures = measures if hides else ["step_seconds", "memory_gb", "throughput"]
    first, *others = spec.factors
    place, line = (
        (others[0], first) if others and not hides else (first, others[0] if others else None)
    )
    figure, axes = panels(3, 3, 0.85 * COLUMN)
    for axis, measure in zip(axes, measures, strict=False):
        part = table[(table.measure == measure) & table["mean"].notna()]
        _by_factors(axis, part, study.wide(experiment, measure), place, line)
        axis.set(xlabel=in_words(place), ylabel=label(measure))
    if hides:
        hidden = tables[f"{experiment}_hidden"].dropna(subset="hidden")
        pools = dict(iter(hidden.groupby("pool", sort=False)["hidden"]))
        categories(axes[2], [level_name(str(pool)) for pool in pools], upright=True)
        draw_marks(axes[2], [_mark(i, seeds) for i, seeds in enumerate(pools.values())], None, True)
        axes[2].set_ylabel("judge time hidden (share)")
    one_legend(figure, axes)
    shown = "time of a training step and of the judge in it" if hides else "cost of a training step"
    return figure, (
        f"Experiment {experiment}: {shown}, by {in_words(place)}"
        + (f" and {in_words(line)} (colour). " if line else ". ")
        + f"{HOW}{HIDDEN if hides else ''} {study.origin(experiment)}"
    )


def _by_factors(
    axis: Axes, table: pd.DataFrame, values: pd.DataFrame, place: str, line: str | None
) -> None:
    """Arms at the place and in the colour of their two factors.

    Args:
        axis: the panel.
        table: columns arm and the factors.
        values: one row per seed, one column per arm.
        place: the factor on the horizontal axis.
        line: the factor that colours show.
    """
    places = list(dict.fromkeys(table[place]))
    lines = list(dict.fromkeys(table[line])) if line else [""]
    marks = []
    for number, level in enumerate(lines):
        part = table[table[line] == level] if line else table
        text = f"{in_words(line)} {level_name(str(level))}" if line else None
        looks = {"colour": LEVEL_COLOURS[number % 3], "shape": "os^"[number % 3], "label": text}
        shift = 0.2 * (number - (len(lines) - 1) / 2)
        mine = [
            _mark(places.index(row[place]) + shift, values[row["arm"]].dropna(), **looks)
            for row in part.to_dict("records")
        ]
        axis.plot(
            [m.place for m in mine], [m.mean for m in mine], color=looks["colour"], linewidth=1
        )
        marks += mine
    categories(axis, [level_name(str(level)) for level in places], upright=True)
    draw_marks(axis, marks, None, upright=True, zero=False)


def _mark(place: float, seeds: pd.Series, **looks: Any) -> Mark:
    """Mean of some seeds, with their interval."""
    interval = student_interval(seeds)
    bars = ((interval.low, interval.high, 1.2),)
    return Mark(
        place, interval.estimate, bars, seeds, beside=0.07, **({"colour": "#333333"} | looks)
    )

"""The forest of verdicts: contrasts by any endpoint in units of their margins."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from refblend.study.design.measures import MEASURES
from refblend.study.report.plotting import common as plot
from refblend.study.report.plotting.reach import draw_reach, missed_handle
from refblend.study.stats.verdicts import VERDICTS

_COLOURS = (plot.PALETTE[0], plot.PALETTE[3], plot.PALETTE[2], plot.BASELINE_COLOUR)
LOOKS: dict[str, dict[str, Any]] = {
    name: {"colour": colour, "shape": shape}
    for name, colour, shape in zip(VERDICTS, _COLOURS, "^vso", strict=True)
}
WIDEST = 4.0
"""Margins on either side beyond which an interval's end is cut off, and a mean is drawn on a
logarithmic scale."""
FOREST = (
    "each in units of its margin of equivalence and turned so that better is to the right. Bars: "
    "95 % intervals, not adjusted (Student's for pairs, Welch's else), an arrow head where one "
    "goes on beyond the panel; mark and colour: the verdict, adjusted by Holm within the "
    "experiment. Green: differences that count as none. An axis that goes "
    f"beyond ±{2 * WIDEST:g} margins is logarithmic outside ±{WIDEST:g}. Grey: differences that so "
    "many seeds miss in more than one study of five."
)
"""What the marks of the forest mean."""


def verdict_forest(table: pd.DataFrame, names: Sequence[str]) -> Figure:
    """Verdicts in the order of the table, one row each with its name.

    ``table`` has the columns ``endpoint``, ``margin``, ``estimate``, ``low``, ``high``, ``alpha``,
    ``least_p_adjusted``, ``detectable`` and ``verdict`` of :mod:`refblend.study.report.verdicts`.
    The grey band ends where Student's test detects a difference, and spans the axis where the exact
    test cannot reach α, so that no difference would be called better or worse.
    """
    better = table.endpoint.map(lambda name: 1.0 if MEASURES[name].higher_is_better else -1.0)
    unit = better.astype("float64") / table.margin
    shown = table.assign(
        estimate=table.estimate * unit,
        ends=[sorted(pair) for pair in zip(table.low * unit, table.high * unit, strict=True)],
    )
    size = (2 * plot.COLUMN, 0.9 + 0.17 * max(4, len(names)))
    figure, (axis,) = plot.panels(1, 1, figsize=size)
    plot.categories(axis, names, fontsize="x-small")
    marks = []
    for place, row in enumerate(shown.itertuples()):
        if np.isfinite(row.estimate):
            bars = ((row.ends[0], row.ends[1], 1.6),)
            marks.append(plot.Mark(place, row.estimate, bars, **LOOKS[row.verdict]))
        if row.least_p_adjusted > row.alpha:
            draw_reach(axis, place, np.inf)
        elif np.isfinite(row.detectable):
            draw_reach(axis, place, row.detectable / row.margin)
    reach = max([2.0, *(abs(edge) for mark in marks for edge in mark.bars[0][:2])])
    reach = min(reach * 1.05, max(WIDEST, *(1.1 * abs(mark.mean) for mark in marks), 0.0))
    wide = reach > 2 * WIDEST  # a few large differences would leave the others no room
    reach *= 1.4 if wide else 1.0
    plot.draw_marks(axis, marks, (-reach, reach))
    if wide:
        plot.symmetric_log(axis, WIDEST, (1, 2, 4, 10, 100, 1000))
    axis.axvspan(-1, 1, color=plot.PALETTE[2], alpha=0.12, zorder=0, linewidth=0)
    axis.set_xlabel("difference ÷ margin, better to the right")
    line: dict[str, Any] = {"linestyle": "none", "markersize": 5}
    legend: list[Any] = [
        Line2D([], [], color=look["colour"], marker=look["shape"], label=name, **line)
        for name, look in LOOKS.items()
    ]
    legend += [
        Patch(color=plot.PALETTE[2], alpha=0.2, label="within the margin"),
        missed_handle(),
    ]
    plot.one_legend(figure, (), ncols=3, extra=legend)
    axis.tick_params(axis="y", colors=plot.INK)
    return figure

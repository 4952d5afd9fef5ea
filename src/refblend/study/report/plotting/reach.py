"""What so many seeds can detect, behind the marks of a forest."""

import math
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from refblend.study.report.plotting import common as plot
from refblend.study.stats.power import Design, least_detectable

MISSED_COLOUR = "#e4e4e4"
"""Of differences that the seeds cannot detect."""
MISSED = "Grey: differences that Student's test misses in more than one study of five"
"""What the band means, to be followed by the family that is adjusted for."""


def detectable(deviation: float, pairs: int, family: int, alpha: float = 0.05) -> float:
    """The least true difference that Student's test of paired seeds detects with a power of 80 %,
    at α / family.

    0 where nothing varies or there is no pair of pairs. ``deviation`` is that of the differences.
    """
    if pairs < 2 or not deviation > 0:
        return 0.0
    return least_detectable(Design(deviation, True, alpha / max(1, family)), pairs, 0.8)


def draw_reach(axis: Axes, place: float, reach: float, pairs: int | None = None) -> None:
    """The differences that are not detectable behind a mark, the number of pairs beside it.

    Where none is, ``reach`` is infinite, and the band spans the axis.
    """
    looks: dict[str, Any] = {"color": MISSED_COLOUR, "linewidth": 7, "zorder": 0}
    if math.isinf(reach):
        axis.axhline(place, **looks)
    else:
        axis.hlines(place, -reach, reach, **looks)
    if pairs is not None:
        axis.text(
            1.03, place, f"n = {pairs}", transform=axis.get_yaxis_transform(), va="center",
            fontsize="x-small", color=plot.INK,
        )  # fmt: skip


def missed_handle() -> Line2D:
    """The band in a legend."""
    return Line2D([], [], color=MISSED_COLOUR, linewidth=7, label="not detectable")

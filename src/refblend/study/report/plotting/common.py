"""What all figures are drawn with: one look, panels, marks with intervals, limits, legends."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from refblend.errors import StudyError
from refblend.files import atomic_path
from refblend.ppo.weights import STRATEGIES
from refblend.study.stats.statistics import student_interval

COLUMN = 3.5
"""Width of one column in inches; figures are one or two columns wide."""

PALETTE = tuple(sns.color_palette("colorblind").as_hex())
BASELINE_COLOUR = "#595959"
RIGHT_COLOUR, WRONG_COLOUR = PALETTE[0], PALETTE[3]
ANSWERS = (("wrong", WRONG_COLOUR), ("right", RIGHT_COLOUR))
"""Kinds of answers, wrong and right, with their colours."""

STRATEGY_PALETTE = (
    "#0173b2", "#de8f05", "#029e73", "#cc78bc", "#d55e00",
    "#8c5a2b", "#56b4e9", "#b6a700", "#7f3c8d", "#2f8f8f",
)  # fmt: skip
"""Colours of the strategies in the order of their registry; with more strategies they repeat."""

CONTROL_COLOURS = {"shuffled": "#332288", "random": "#999933", "oracle": "#882255"}
"""Colours of the controls, which have a strategy too."""

PLACEMENT_COLOURS = {"per_token": "#0173b2", "terminal": "#de8f05", "per_token_mean": "#029e73"}
LEVEL_COLOURS = ("#0173b2", "#d55e00", "#029e73")
"""Colours of a parameter's few levels."""

STYLE: dict[str, Any] = {
    "svg.hashsalt": "refblend",  # element ids are the same in every run
    "figure.constrained_layout.use": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.5,
    "legend.frameon": False,
    "lines.linewidth": 1.4,
}
"""What differs from seaborn's settings for papers."""

Drawn = tuple[Figure, str]
"""A figure and its caption."""

REACH = 1.0
"""How far beyond the seeds an interval may stretch an axis, in spans of the seeds."""

CROWDED = 15.0
"""Widths of a typical interval beyond which an axis of differences is stretched in the middle."""

INK = "#404040"

BARS = (
    "Thick bars: Student's 95 % interval of the mean paired difference; thin bars: the same for "
    "all comparisons of the family together (Bonferroni); small strokes: single seeds; an arrow "
    "head: the bar goes on beyond the panel. An axis that a few wide intervals would flatten is "
    "logarithmic outside its innermost ticks."
)
"""What the bars of every forest mean."""


def apply_style() -> None:
    """Set the style; call it before a figure is made."""
    sns.set_theme("paper", "ticks", "colorblind", font_scale=0.9, rc=STYLE)


def strategy_colours() -> dict[str, str]:
    """The colour of every registered strategy and of the controls, the same in all figures."""
    return dict(zip(STRATEGIES, cycle(STRATEGY_PALETTE), strict=False)) | CONTROL_COLOURS


def arm_colours(arms: Iterable[str], baseline: str) -> dict[str, Any]:
    """One colour per arm, the baseline in grey; the same in all figures of a milestone."""
    others = [arm for arm in dict.fromkeys(arms) if arm != baseline]
    return {baseline: BASELINE_COLOUR} | dict(zip(others, cycle(PALETTE), strict=False))


def write_figure(figure: Figure, path: str | Path, caption: str) -> None:
    """Write SVG, PNG or PDF by the path's suffix, then close the figure.

    The caption is the file's description, for readers and for the report. Nothing in the file
    depends on the time.

    Raises:
        StudyError: another suffix.
    """
    suffix = Path(path).suffix.removeprefix(".")
    metadata: dict[str, dict[str, Any]] = {
        "svg": {"Date": None, "Description": caption},
        "png": {"Software": None, "Description": caption},
        "pdf": {"CreationDate": None, "Subject": caption},
    }
    if suffix not in metadata:
        plt.close(figure)
        raise StudyError(f"{path}: no figure is written as {suffix}", "Use .svg, .png or .pdf.")
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format=suffix, dpi=200, metadata=metadata[suffix])
    plt.close(figure)


def panels(
    count: int, across: int, height: float = 0.75 * COLUMN, **options: Any
) -> tuple[Figure, list[Axes]]:
    """At least one panel, in rows of ``across`` panels, each row ``height`` inches high.

    The figure is two columns wide unless ``options``, those of ``plt.subplots``, say otherwise.
    """
    count = max(1, count)
    across = max(1, min(across, count))
    rows = -(-count // across)
    options = {"figsize": (2 * COLUMN, height * rows), "squeeze": False} | options
    figure, axes = plt.subplots(rows, across, **options)
    shown = list(axes.flat)
    for axis in shown[count:]:
        axis.remove()
    for axis in shown[count - across : count]:
        axis.tick_params(labelbottom=True)
    return figure, shown[:count]


@dataclass(frozen=True)
class Mark:
    """A mean with its intervals and seeds at one place of a panel."""

    place: float
    mean: float
    bars: Sequence[tuple[float, float, float]] = ()
    """Low, high and line width of each interval; one that is NaN is not drawn."""
    seeds: Iterable[float] = ()
    beside: float = 0.0
    """How far from the mean the seeds are drawn."""
    colour: str = BASELINE_COLOUR
    shape: str = "o"
    label: str | None = None
    """In the legend."""
    filled: bool = True
    line: dict[str, Any] = field(default_factory=dict)
    """More of the mark's style."""


def mean_mark(place: float, values: pd.Series, width: float, **looks: Any) -> Mark:
    """The mean of seeds with Student's interval, a bar of some width."""
    found = student_interval(values)
    return Mark(place, found.estimate, ((found.low, found.high, width),), values, **looks)


def difference_mark(
    place: float, row: "pd.Series[Any]", seeds: Iterable[float], beside: float, **looks: Any
) -> Mark:
    """The paired difference of a summary's row, with the bars that :data:`BARS` explains."""
    kinds = (("diff_family", 0.8), ("diff", 2.4))
    bars = [(row[f"{kind}_low"], row[f"{kind}_high"], width) for kind, width in kinds]
    return Mark(place, row["diff"], bars, seeds, beside, **looks)


def draw_marks(
    axis: Axes,
    marks: Sequence[Mark],
    limits: tuple[float, float] | None = None,
    upright: bool = False,
    zero: bool = True,
) -> None:
    """Draw means with intervals and seeds, or say that there are none.

    ``limits`` of the values' axis are by default those of :func:`mark_limits`; that axis is the
    vertical one if ``upright``. ``zero``: draw a line at 0, and keep it in view.
    """
    limits = limits or mark_limits(marks, zero)
    if limits:
        axis.set(**{"ylim" if upright else "xlim": limits})
    if zero:
        line = axis.axhline if upright else axis.axvline
        line(0, color=BASELINE_COLOUR, linewidth=0.8, linestyle="--", zorder=1)
    for mark in marks:
        for low, high, width in mark.bars:
            if np.isfinite(low) and np.isfinite(high):
                interval_bar(
                    axis, mark.place, low, high, upright, color=mark.colour, linewidth=width
                )
        seeds = list(mark.seeds)
        small = (np.full(len(seeds), mark.place + mark.beside), seeds)
        stroke: dict[str, Any] = {"markersize": 4, "markeredgewidth": 0.7, "color": INK}
        axis.plot(*(small if upright else small[::-1]), "_" if upright else "|", **stroke)
        at = (mark.place, mark.mean)
        axis.plot(
            *(at if upright else at[::-1]), mark.shape, color=mark.colour, label=mark.label,
            markerfacecolor=mark.colour if mark.filled else "white",
            **{"markersize": 4.5, "zorder": 5} | mark.line,
        )  # fmt: skip
    if not marks:
        no_data(axis)


def mark_limits(marks: Sequence[Mark], zero: bool = True) -> tuple[float, float] | None:
    """Limits that hold means, seeds and zero, and the widest intervals as far as they are near."""
    values = [value for mark in marks for value in (mark.mean, *mark.seeds)]
    bounds = [bound for mark in marks for bar in mark.bars for bound in bar[:2]]
    return value_limits([*values, *([0.0] if zero else [])], bounds) if values else None


def value_limits(
    seeds: Iterable[float], bounds: Iterable[float] = (), pad: float = 0.06
) -> tuple[float, float] | None:
    """Limits of an axis that holds every seed, and the bounds of intervals as far as they are near.

    Student's interval of two seeds is nine times their standard deviation: an axis that held it
    would show nothing else. Bounds count up to :data:`REACH` spans of the seeds beyond these.

    Returns:
        Null without a value: the axis is left as it is.
    """
    values = np.asarray(list(seeds), dtype=np.float64)
    values = values[np.isfinite(values)]
    if not values.size:
        return None
    low, high = values.min(), values.max()
    span = high - low if high > low else max(abs(high) * 0.1, 1e-3)
    edges = np.asarray(list(bounds), dtype=np.float64)
    edges = np.clip(edges[np.isfinite(edges)], low - REACH * span, high + REACH * span)
    low, high = min([low, *edges]), max([high, *edges])
    room = pad * max(high - low, span)
    return float(low - room), float(high + room)


def stretch_middle(*panels: tuple[Axes, Sequence[Mark]]) -> None:
    """Leave the middle of crowded axes of differences its room: logarithmic further out.

    Crowded is an axis of more than :data:`CROWDED` times the median width of its intervals, as
    where arms of four seeds stand beside arms of twenty. If one panel is, all get such an axis
    whose limits hold a tick of its logarithmic part.
    """
    typical = {axis: _typical_width(marks) for axis, marks in panels}
    spans = {axis: float(np.ptp(axis.get_xlim())) for axis in typical}
    if any(0 < width < spans[axis] / CROWDED for axis, width in typical.items()):
        for axis, width in typical.items():
            threshold = float(f"{2 * width:.0e}") if width > 0 else math.inf
            ticks = [threshold * 5**power for power in range(6)]
            if ticks[1] < max(map(abs, axis.get_xlim())):
                symmetric_log(axis, threshold, ticks, middle=1.0)


def _typical_width(marks: Sequence[Mark]) -> float:
    """The median width of the narrowest intervals of some marks; 0 where there is none."""
    widths = [high - low for mark in marks for low, high, _ in list(mark.bars)[-1:]]
    return float(np.nanmedian(widths)) if np.isfinite(widths).any() else 0.0


def symmetric_log(
    axis: Axes, threshold: float, ticks: Iterable[float], middle: float = 2.0
) -> None:
    """A horizontal axis that is linear to a threshold on either side of 0 and logarithmic beyond.

    Those of the positive ``ticks`` are drawn that its limits hold, each on both sides, and 0. The
    middle takes as much room on either side as ``middle`` decades further out.
    """
    low, high = axis.get_xlim()
    axis.set_xscale("symlog", linthresh=threshold, linscale=middle)
    both = [0.0, *(side * tick for tick in ticks for side in (-1.0, 1.0))]
    axis.set_xticks(sorted(tick for tick in both if low < tick < high))
    axis.set_xlim(low, high)
    axis.xaxis.set_major_formatter("{x:g}")
    axis.xaxis.set_minor_locator(NullLocator())


def interval_bar(
    axis: Axes, place: float, low: float, high: float, upright: bool = False, **style: Any
) -> None:
    """A bar from low to high within the axis' limits, an arrow head where it goes on beyond."""
    limits = axis.get_ylim() if upright else axis.get_xlim()
    draw = axis.vlines if upright else axis.hlines
    draw(place, max(low, limits[0]), min(high, limits[1]), **style)
    beyond = (low < limits[0], high > limits[1])
    for cut, edge, head in zip(beyond, limits, "v^" if upright else "<>", strict=True):
        if cut:
            at = (place, edge) if upright else (edge, place)
            axis.plot(*at, head, color=style.get("color"), markersize=3, clip_on=False, zorder=4)


def categories(axis: Axes, names: Sequence[str], upright: bool = False, **font: Any) -> None:
    """A place for each name, without a grid; the first above, or left with upright marks."""
    if upright:
        axis.set_xticks(range(len(names)), names, **font)
        axis.set_xlim(-0.5, max(len(names), 1) - 0.5)
    else:
        axis.set_yticks(range(len(names)), names, **font)
        axis.set_ylim(max(len(names), 1) - 0.4, -0.6)
    axis.grid(visible=False, axis="x" if upright else "y")


def no_data(
    axis: Axes, text: str = "no data", x: float = 0.5, place: float | None = None, **style: Any
) -> None:
    """Say in the middle of the panel, or at one of its places, that there is nothing to show."""
    axis.text(
        x, 0.5 if place is None else place, text, va="center", zorder=6,
        transform=axis.transAxes if place is None else axis.get_yaxis_transform(),
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5},
        **{"ha": "center", "color": BASELINE_COLOUR} | style,
    )  # fmt: skip


def one_legend(
    figure: Figure, axes: Iterable[Axes], ncols: int | None = None, extra: Sequence[Any] = ()
) -> None:
    """One legend above all panels in place of one per panel, each label once, ``extra`` artists
    last; of at most ``ncols`` columns, and of as many rows as the figure's width takes."""
    entries: dict[str, Any] = {}
    for axis in axes:
        handles, labels = axis.get_legend_handles_labels()
        entries |= dict(zip(labels, handles, strict=True))
    entries |= {artist.get_label(): artist for artist in extra}
    fewest = math.ceil(len(entries) / ncols) if ncols else 1
    for rows in range(max(1, fewest), len(entries) + 1):
        style: dict[str, Any] = {"ncols": math.ceil(len(entries) / rows)}
        legend = figure.legend(
            entries.values(), entries.keys(), loc="outside upper center", **style
        )
        if legend.get_window_extent().width <= figure.bbox.width or rows == len(entries):
            return
        legend.remove()

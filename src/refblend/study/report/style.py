"""What all figures are drawn with: one look, panels, marks with intervals, curves, legends."""

from collections.abc import Collection, Iterable, Mapping, Sequence
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
from matplotlib.ticker import MaxNLocator, NullLocator

from refblend.files import atomic_path
from refblend.ppo.weights import STRATEGIES
from refblend.study.stats.statistics import student_interval

COLUMN = 3.5
"""Width of one column in inches; figures are one or two columns wide."""

PALETTE = tuple(sns.color_palette("colorblind").as_hex())
BASELINE_COLOUR = "#595959"
INK = "#404040"
RIGHT_COLOUR, WRONG_COLOUR = PALETTE[0], PALETTE[3]
STRATEGY_PALETTE = (
    "#0173b2", "#de8f05", "#029e73", "#cc78bc", "#d55e00",
    "#8c5a2b", "#56b4e9", "#b6a700", "#7f3c8d", "#2f8f8f",
)  # fmt: skip
"""In the order of the strategies' registry; with more strategies the colours repeat."""
BLEND_COLOURS = dict(zip(STRATEGIES, cycle(STRATEGY_PALETTE), strict=False))
BLEND_COLOURS |= {"shuffled": "#332288", "random": "#999933", "oracle": "#882255"}
"""The colour of every strategy, and of the controls, which have a strategy too."""

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
MOST_LINES = 10
"""Seeds of an arm that are drawn one by one; with more their lines would hide the bands."""
FEWEST_SEEDS = 3
"""Seeds of an arm from which on a band is drawn: that of two would fill the panel."""


def apply_style() -> None:
    """Set the style; call it before a figure is made."""
    sns.set_theme("paper", "ticks", "colorblind", font_scale=0.9, rc=STYLE)


def write_figure(figure: Figure, path: Path) -> None:
    """Write SVG or PNG by the path's suffix, then close the figure; no byte depends on the time."""
    if (engine := figure.get_layout_engine()) is not None:
        engine.execute(figure)
        figure.set_layout_engine("none")
    for axis in figure.axes:  # the layout's last digits differ from run to run, and so would ids
        axis.set_position(tuple(round(edge, 6) for edge in axis.get_position().bounds))
    suffix = path.suffix.removeprefix(".")
    metadata: dict[str, Any] = {"svg": {"Date": None}, "png": {"Software": None}}
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
    look: Mapping[str, Any] = field(default_factory=dict)
    """More of the mark's style: matplotlib's names."""


def mean_mark(place: float, values: pd.Series, width: float, **looks: Any) -> Mark:
    """The mean of seeds with Student's interval, a bar of some width."""
    found = student_interval(values)
    return Mark(place, found.estimate, ((found.low, found.high, width),), values, **looks)


def draw_marks(
    axis: Axes,
    marks: Sequence[Mark],
    limits: tuple[float, float] | None = None,
    upright: bool = False,
    zero: bool = True,
) -> None:
    """Draw means with intervals and seeds, or say that there are none.

    ``limits`` of the values' axis, the vertical one if ``upright``, hold by default means, seeds,
    and the intervals as far as they are near. ``zero``: draw a line at 0, and keep it in view.
    """
    values = [value for mark in marks for value in (mark.mean, *mark.seeds)]
    edges = [bound for mark in marks for bar in mark.bars for bound in bar[:2]]
    limits = limits or value_limits([*values, *([0.0] if zero else [])], edges)
    if marks and limits:
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
        look: dict[str, Any] = {"marker": "o", "markersize": 4.5, "zorder": 5, "linestyle": "none"}
        axis.plot(*(at if upright else at[::-1]), color=mark.colour, **look | dict(mark.look))
    if not marks:
        no_data(axis)


def value_limits(
    seeds: Iterable[float], bounds: Iterable[float] = ()
) -> tuple[float, float] | None:
    """Limits of an axis that holds every seed, and the bounds of intervals as far as they are near.

    Student's interval of two seeds is nine times their standard deviation: an axis that held it
    would show nothing else. Bounds count up to :data:`REACH` spans of the seeds beyond these.
    None without a value: the axis is left as it is.
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
    room = 0.06 * max(high - low, span)
    return float(low - room), float(high + room)


def symmetric_log(axis: Axes, threshold: float, ticks: Iterable[float]) -> None:
    """A horizontal axis that is linear to a threshold on either side of 0 and logarithmic beyond.

    Those of the positive ``ticks`` are drawn that its limits hold, each on both sides, and 0.
    """
    low, high = axis.get_xlim()
    axis.set_xscale("symlog", linthresh=threshold, linscale=2.0)
    both = [0.0, *(side * tick for tick in ticks for side in (-1.0, 1.0))]
    axis.set_xticks(sorted(tick for tick in both if low < tick < high))
    axis.set_xlim(low, high)
    axis.xaxis.set_major_formatter("{x:g}")
    axis.xaxis.set_minor_locator(NullLocator())
    axis.set_xlabel(f"{axis.get_xlabel()}\n(logarithmic beyond ±{threshold:g})")


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


def no_data(axis: Axes, text: str = "no data") -> None:
    """Say in the middle of the panel that there is nothing to show."""
    style: dict[str, Any] = {"ha": "center", "va": "center", "color": BASELINE_COLOUR, "zorder": 6}
    axis.text(0.5, 0.5, text, transform=axis.transAxes, **style)


def one_legend(
    figure: Figure, axes: Iterable[Axes], ncols: int = 4, extra: Sequence[Any] = ()
) -> None:
    """One legend above all panels in place of one per panel, each label once, ``extra`` last."""
    entries: dict[str, Any] = {}
    for axis in axes:
        handles, labels = axis.get_legend_handles_labels()
        entries |= dict(zip(labels, handles, strict=True))
    entries |= {artist.get_label(): artist for artist in extra}
    place = "outside upper center"
    figure.legend(entries.values(), entries.keys(), loc=place, ncols=ncols)


def curves(
    axis: Axes, frame: pd.DataFrame, colours: Mapping[str, Any], dashed: Collection[str] = ()
) -> None:
    """Mean over seeds with Student's band and every seed thin, one colour per arm.

    ``frame`` has the columns arm, seed, step and value; ``colours`` the arms that are drawn, in the
    legend's order. The panel's height is chosen by the seeds, wide bands are cut off. Arms with
    fewer than :data:`FEWEST_SEEDS` have no band, those with more than :data:`MOST_LINES` no lines.
    """
    frame = frame[frame.arm.isin(list(colours))]
    if frame.empty:
        no_data(axis, "no finished run")
        return
    for arm in (arm for arm in colours if arm in set(frame.arm)):
        part, line = frame[frame.arm == arm], {"color": colours[arm]}
        table = part.pivot_table(index="step", columns="seed", values="value")
        if table.shape[1] <= MOST_LINES:
            axis.plot(table.index, table, linewidth=0.5, alpha=0.35, **line)
        if table.shape[1] >= FEWEST_SEEDS:
            band = pd.DataFrame([student_interval(row.dropna()) for _, row in table.iterrows()])
            axis.fill_between(table.index, band.low, band.high, alpha=0.12, linewidth=0, **line)
        style = (0, (4, 1.5)) if arm in dashed else "-"
        axis.plot(table.index, table.mean(axis=1), linestyle=style, label=arm, **line)
    axis.set_ylim(value_limits(frame["value"]))
    axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))

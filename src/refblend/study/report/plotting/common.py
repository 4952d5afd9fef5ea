"""Shared by the figures of all milestones: lines with bands, legends, empty panels, captions."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from refblend.study.stats.statistics import student_interval

Drawn = tuple[Figure, str]
"""A figure and its caption."""

BAND = STUDENT_BAND = (
    "Lines: mean over seeds; bands: Student's 95 % interval of the mean, cut off at the panel; "
    "thin lines: seeds."
)
BINS = np.linspace(0.0, 1.0, 11)
MIN_BIN = 10
"""Responses that a bin of the reliability figure needs to be drawn."""

REACH = 1.0
"""How far beyond the seeds an interval may stretch an axis, in spans of the seeds."""


def bin_scores(scores: pd.Series, right: pd.Series) -> pd.DataFrame:
    """Mean score, share of right answers and count in ten equal bins of [0, 1]; no empty bins."""
    which = np.clip((scores.to_numpy(float) * 10).astype(int), 0, 9)
    frame = pd.DataFrame({"bin": which, "score": scores.to_numpy(), "accuracy": right.to_numpy()})
    grouped = frame.groupby("bin").agg(
        score=("score", "mean"), accuracy=("accuracy", "mean"), count=("score", "size")
    )
    return grouped.reset_index(drop=True)


def curves(axis: Axes, frame: pd.DataFrame, colours: Mapping[str, Any], label: str) -> None:
    """Mean over seeds with Student's band and every seed thin, one colour per arm.

    Args:
        axis: the panel; its height is chosen by the seeds, wide bands are cut off.
        frame: columns arm, seed, step, value.
        colours: arm → colour, in the legend's order.
        label: of the vertical axis.
    """
    axis.set(xlabel="step", ylabel=label)
    if frame.empty:
        no_data(axis)
        return
    for arm, colour in colours.items():
        part = frame[frame.arm == arm]
        if len(part):
            student_line(axis, part, colour, arm)
    axis.set_ylim(value_limits(frame["value"]))


def student_line(
    axis: Axes,
    frame: pd.DataFrame,
    colour: Any,
    label: str,
    x: str = "step",
    band: float = 0.15,
    **line: Any,
) -> None:
    """Mean of one arm over its seeds with Student's band, and every seed thin.

    Args:
        axis: the panel.
        frame: columns seed, step, value and ``x``, one row per (seed, step).
        colour: of line, band and seeds.
        label: in the legend.
        x: column of the horizontal axis; its mean over seeds at a step places the line.
        band: how opaque the band is.
        line: style of the mean.
    """
    for _, seed in frame.groupby("seed"):
        axis.plot(seed[x], seed["value"], color=colour, linewidth=0.5, alpha=0.35)
    steps = list(frame.groupby("step"))
    places = [part[x].mean() for _, part in steps]
    intervals = [student_interval(part["value"]) for _, part in steps]
    axis.plot(places, [i.estimate for i in intervals], color=colour, label=label, **line)
    axis.fill_between(
        places, [i.low for i in intervals], [i.high for i in intervals],
        color=colour, alpha=band, linewidth=0,
    )  # fmt: skip


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
    if edges.size:
        low, high = min(low, edges.min()), max(high, edges.max())
    room = pad * max(high - low, span)
    return float(low - room), float(high + room)


def horizontal_interval(axis: Axes, place: float, low: float, high: float, **style: Any) -> None:
    """A bar from low to high within the axis' limits, an arrow head where it goes on beyond."""
    limits = axis.get_xlim()
    axis.hlines(place, max(low, limits[0]), min(high, limits[1]), **style)
    for edge, marker in _cut_ends(low, high, limits, "<>"):
        axis.plot(edge, place, marker, color=style.get("color"), **ARROW_HEAD)


def vertical_interval(axis: Axes, place: float, low: float, high: float, **style: Any) -> None:
    """The same as :func:`horizontal_interval`, upright."""
    limits = axis.get_ylim()
    axis.vlines(place, max(low, limits[0]), min(high, limits[1]), **style)
    for edge, marker in _cut_ends(low, high, limits, "v^"):
        axis.plot(place, edge, marker, color=style.get("color"), **ARROW_HEAD)


ARROW_HEAD: dict[str, Any] = {"markersize": 3, "clip_on": False, "zorder": 4}


def _cut_ends(
    low: float, high: float, limits: tuple[float, float], markers: str
) -> list[tuple[float, str]]:
    """Limits that an interval goes on beyond, each with its marker."""
    beyond = (low < limits[0], high > limits[1])
    ends = zip(beyond, limits, markers, strict=True)
    return [(edge, marker) for cut, edge, marker in ends if cut]


def no_data(axis: Axes, text: str = "no data") -> None:
    """Say in the panel that there is nothing to show."""
    axis.text(
        0.5, 0.5, text, ha="center", va="center", transform=axis.transAxes, color="#595959",
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 2.0}, zorder=6,
    )  # fmt: skip


def one_legend(
    figure: Figure, axes: Any, ncols: int | None = None, extra: Sequence[Any] = ()
) -> None:
    """One legend above all panels in place of one per panel.

    Args:
        figure: gets the legend.
        axes: panels whose entries are taken, each label once.
        ncols: entries per row; all in one row without.
        extra: further artists with a label of their own, after the panels' entries.
    """
    entries: dict[str, Any] = {}
    for axis in axes:
        entries |= {
            name: handle for handle, name in zip(*axis.get_legend_handles_labels(), strict=True)
        }
        if axis.get_legend():
            axis.get_legend().remove()
    entries |= {artist.get_label(): artist for artist in extra}
    if entries:
        columns = ncols or len(entries)
        figure.legend(entries.values(), entries.keys(), loc="outside upper center", ncols=columns)

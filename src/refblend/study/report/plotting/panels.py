"""Panels that several reports draw alike: curves, calibration, distributions of scores."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from refblend.study.report.plotting import common as plot
from refblend.study.runs.curves import ENTROPY, series
from refblend.study.stats.statistics import student_interval

BAND = (
    "Lines: mean over seeds; bands: Student's 95 % interval of the mean, cut off at the panel; "
    "thin lines: seeds, of arms with at most ten."
)
MOST_LINES = 10
"""Seeds of an arm that are drawn one by one; with more their lines would hide the bands."""

BINS = np.linspace(0.0, 1.0, 11)
MIN_BIN = 10
"""Responses that a bin of a reliability panel needs to be drawn."""

KEYS = ["arm", "seed", "step"]
WEIGHT = ("actor/ref_quality/weight",)
ENTROPY_LABEL = "avg. entropy (nats)"


def curves(
    axis: Axes,
    frame: pd.DataFrame,
    colours: Mapping[str, Any],
    label: str = "",
    x: str = "step",
    dashed: Collection[str] = (),
    seeds: bool = True,
) -> None:
    """Mean over seeds with Student's band and every seed thin, one colour per arm.

    Args:
        axis: the panel; its height is chosen by the seeds, wide bands are cut off.
        frame: columns arm, seed, step, value and ``x``.
        colours: arm → colour, in the legend's order; other arms are not drawn.
        label: of the vertical axis.
        x: column of the horizontal axis; its mean over seeds at a step places the line.
        dashed: arms whose line is dashed.
        seeds: draw bands, and the seeds of arms that have few, not the means alone.
    """
    axis.set(xlabel=x, ylabel=label)
    frame = frame[frame.arm.isin(list(colours))]
    if frame.empty:
        plot.no_data(axis, "no finished run")
        return
    drawn = [arm for arm in colours if arm in set(frame.arm)]
    frame = frame.assign(place=frame.groupby(["arm", "step"])[x].transform("mean"))
    shared = {"y": "value", "hue": "arm", "hue_order": drawn, "palette": dict(colours), "ax": axis}
    if seeds:
        single = {"units": "seed", "estimator": None, "legend": False}
        few = frame[frame.groupby("arm")["seed"].transform("nunique") <= MOST_LINES]
        if len(few):
            sns.lineplot(few, x=x, linewidth=0.5, alpha=0.35, **single, **shared)
    dashes = {arm: (4, 1.5) if arm in dashed else "" for arm in drawn}
    band = {"errorbar": _student if seeds else None, "err_kws": {"alpha": 0.12, "linewidth": 0}}
    sns.lineplot(frame, x="place", style="arm", dashes=dashes, **band, **shared)
    axis.legend().remove()
    axis.set(xlabel=x, ylabel=label, ylim=plot.value_limits(frame["value"]))
    axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))


def _student(values: pd.Series) -> tuple[float, float]:
    interval = student_interval(values)
    return interval.low, interval.high


def curve_panels(
    frames: Mapping[str, pd.DataFrame], colours: Mapping[str, Any], across: int = 2, **options: Any
) -> tuple[Figure, list[Axes]]:
    """A panel of curves for each labelled frame, with one legend."""
    figure, axes = plot.panels(len(frames), across, **{"sharex": True} | options)
    for axis, (label, frame) in zip(axes, frames.items(), strict=True):
        curves(axis, frame, colours, label)
    for axis in axes[:-across]:
        axis.set_xlabel("")
    if options.get("sharey"):
        axes[0].set_ylim(plot.value_limits(pd.concat(list(frames.values()))["value"]))
    plot.one_legend(figure, axes)
    return figure, axes


def weight_and_entropy(study: Any) -> plot.Drawn:
    """Blending weight and entropy over time, and against one another, of arms with a judge.

    Of a study with ``metrics`` of finished runs and ``colours`` of arms.
    """
    figure, axes = plot.panels(3, 3)
    weight, entropy = series(study.metrics, *WEIGHT), series(study.metrics, ENTROPY[0])
    both, colours = weight.merge(entropy, on=KEYS, suffixes=("_w", "_h")), study.colours
    curves(axes[0], both.rename(columns={"value_h": "value"}), colours, ENTROPY_LABEL)
    curves(axes[1], both.rename(columns={"value_w": "value"}), colours, "weight w")
    for arm, part in both.groupby("arm"):
        axes[2].scatter(part.value_h, part.value_w, s=6, alpha=0.6, color=colours[arm])
    axes[2].set(xlabel=ENTROPY_LABEL, ylabel="weight w")
    if both.empty:
        plot.no_data(axes[2])
    plot.one_legend(figure, axes[:2])
    return figure, (
        "Blending weight and batch-average entropy of the arms with a judge: over the training "
        f"steps, and weight against entropy with one point per step and run. {BAND}"
    )


def bin_scores(scores: pd.Series, right: pd.Series) -> pd.DataFrame:
    """Mean score, share of right answers and count in ten equal bins of [0, 1]; no empty bins."""
    which = np.clip((scores.to_numpy(float) * 10).astype(int), 0, 9)
    frame = pd.DataFrame({"bin": which, "score": scores.to_numpy(), "accuracy": right.to_numpy()})
    grouped = frame.groupby("bin").agg(
        score=("score", "mean"), accuracy=("accuracy", "mean"), count=("score", "size")
    )
    return grouped.reset_index(drop=True)


def reliability(axis: Axes, lines: Iterable[tuple[str, pd.DataFrame, str | None]]) -> None:
    """Share of right answers against the score; on the dashed line the two are equal.

    Lines: label, bins (columns score, accuracy, count) and colour; small bins are left out.
    """
    axis.plot([0, 1], [0, 1], color="#999999", linewidth=0.8, linestyle="--")
    axis.set(xlabel="mean judge score", xlim=(0, 1), ylim=(-0.02, 1.02))
    shown = [(label, bins[bins["count"] >= MIN_BIN], colour) for label, bins, colour in lines]
    for label, bins, colour in shown:
        axis.plot(bins.score, bins.accuracy, "o-", markersize=3, color=colour, label=label)
    if not sum(len(bins) for _, bins, _ in shown):
        plot.no_data(axis)


def score_distribution(axis: Axes, responses: pd.DataFrame) -> None:
    """Valid scores (columns judge_score, acc) of right and wrong answers, as shares of all."""
    axis.set(xlabel="judge score", xlim=(0, 1))
    for right, (name, colour) in enumerate(plot.ANSWERS):
        scores = responses[responses.acc.ge(0.5).eq(right)].judge_score
        if len(scores):
            weights = np.full(len(scores), 1 / len(responses))
            look: dict[str, Any] = {"alpha": 0.6, "color": colour, "label": f"{name} answers"}
            axis.hist(scores, list(BINS), weights=weights, **look)
    if responses.empty:
        plot.no_data(axis)

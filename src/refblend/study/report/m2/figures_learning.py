"""M2's learning curves: every arm in a panel of its own against its baseline, and G's lengths."""

import math
from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from refblend.study.report.m2.figures_data import (
    PLACEMENT_NAMES,
    M2Data,
    in_words,
    strategy_colour,
)
from refblend.study.report.plotting.common import (
    STUDENT_BAND,
    Drawn,
    no_data,
    one_legend,
    student_line,
    value_limits,
)
from refblend.study.report.plotting.style import BASELINE_COLOUR, COLUMN, PLACEMENT_COLOURS

X_LABELS = {"step": "step", "seconds": "training time (s)"}
BASELINE_LINE: dict[str, Any] = {"linestyle": (0, (4, 1.5))}
TIMED = (
    "Training time is the sum of the steps' times, without validation and start-up, on a machine "
    "that trains another run beside; a mean is drawn at the seeds' mean time. The axis ends at "
    "twice the median run's time: what was disturbed for longer goes on beyond it."
)


def learning(data: M2Data, experiment: str, arms: Sequence[str], x: str = "step") -> Drawn:
    """Validation accuracy of every arm against its baseline, over steps or training time."""
    frame = data.of(experiment, data.accuracy)
    if x == "seconds":
        frame = frame.merge(data.seconds, on=["arm", "seed", "step"])
    limits = value_limits(frame["value"])
    figure, axes = _grid(len(arms))
    for axis, arm in zip(axes, arms, strict=False):
        baseline = data.study.baseline(experiment, arm)
        part = frame[frame.arm == arm]
        student_line(
            axis, frame[frame.arm == baseline], BASELINE_COLOUR, baseline, x, **BASELINE_LINE
        )
        student_line(axis, part, strategy_colour(arm), arm, x)
        axis.set_title(in_words(arm))
        if part.empty:
            no_data(axis, "no finished run")
    for axis in axes:
        axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        if limits:
            axis.set_ylim(*limits)
    if x == "seconds" and len(frame):
        axes[0].set_xlim(0, 2 * frame.groupby(["arm", "seed"])["seconds"].max().median())
    if not arms:
        no_data(axes[0], f"no arms of {experiment} at this scale")
    figure.supxlabel(X_LABELS[x], fontsize="medium")
    figure.supylabel("val. accuracy (greedy)", fontsize="medium")
    names = sorted({data.study.baseline(experiment, arm) for arm in arms})
    if arms:
        _explain(figure, names)
    against = "training time" if x == "seconds" else "the training steps"
    timed = f" {TIMED}" if x == "seconds" else ""
    return figure, (
        f"Greedy validation accuracy over {against}; step 0 is the actor before any update. Each "
        f"panel: one arm against its baseline (grey, dashed). {STUDENT_BAND}{timed} "
        f"{data.origin(experiment, arms=[*arms, *names])}"
    )


def _explain(figure: Figure, baselines: Sequence[str]) -> None:
    """Legend of what all panels have in common."""
    base = f"baseline ({', '.join(baselines)})"
    figure.legend(
        handles=[
            Line2D([], [], color="black", label="the panel's arm"),
            Line2D([], [], color=BASELINE_COLOUR, label=base, **BASELINE_LINE),
        ],
        loc="outside upper center",
        ncols=2,
    )


def _grid(panels: int) -> tuple[Figure, list[Axes]]:
    """Panels in rows of three with shared axes; those that are not needed are taken out."""
    columns = max(1, min(3, panels))
    rows = max(1, math.ceil(panels / columns))
    figure, axes = plt.subplots(
        rows, columns, figsize=(2 * COLUMN if columns > 1 else COLUMN, 0.7 + 1.35 * rows),
        sharex=True, sharey=True, squeeze=False,
    )  # fmt: skip
    shown = list(axes.flat)
    for axis in shown[max(1, panels) :]:
        axis.remove()
    for axis in shown[max(1, panels) - columns : max(1, panels)]:
        axis.tick_params(labelbottom=True)
    return figure, shown[: max(1, panels)]


def blending_curves(data: M2Data, placement: str, x: str) -> Drawn:
    """Experiment A under one placement."""
    figure, shows = learning(data, "A", data.treated("A", placement), x)
    where = PLACEMENT_NAMES[placement]
    return figure, f"Experiment A, placement {where}. {shows}"


def experiment_curves(data: M2Data, experiment: str) -> Drawn:
    """An experiment whose arms are few."""
    figure, shows = learning(data, experiment, data.treated(experiment))
    return figure, f"Experiment {experiment}. {shows}"


G_ROWS = (
    ("rule reward", ("critic/score/mean",)),
    ("val. accuracy", None),
    ("length (tokens)", ("response_length/mean",)),
)
ESTIMATORS = {"grpo": "GRPO", "gae": "GAE"}


def estimator_arms(data: M2Data, estimator: str) -> list[str]:
    """Arms of G under one estimator, the baseline first."""
    return [arm for arm in data.study.arms("G") if arm.startswith("gae_") == (estimator == "gae")]


def placement_label(data: M2Data, arm: str) -> tuple[str, str]:
    """Label and colour of an arm of G: its placement, or without a judge."""
    if arm in data.baselines("G"):
        return "no judge", BASELINE_COLOUR
    placement = data.placement(arm)
    return PLACEMENT_NAMES[placement], PLACEMENT_COLOURS[placement]


def placement_curves(data: M2Data) -> Drawn:
    """G: reward, accuracy and response length over the steps."""
    figure, axes = plt.subplots(
        len(G_ROWS), 2, figsize=(2 * COLUMN, 1.55 * COLUMN), sharex=True, sharey="row"
    )
    for row, (label, names) in zip(axes, G_ROWS, strict=True):
        frame = data.metric("G", *names) if names else data.of("G", data.accuracy)
        limits = value_limits(frame["value"])
        for axis, estimator in zip(row, ESTIMATORS, strict=True):
            arms = estimator_arms(data, estimator)
            for arm in arms:
                name, colour = placement_label(data, arm)
                part = frame[frame.arm == arm]
                if len(part):
                    student_line(axis, part, colour, name, band=0.09)
            if not frame.arm.isin(arms).any():
                no_data(axis)
            if limits:
                axis.set_ylim(*limits)
        row[0].set_ylabel(label)
    for axis, title in zip(axes[0], ESTIMATORS.values(), strict=True):
        axis.set_title(title)
    for axis in axes[-1]:
        axis.set_xlabel("step")
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.align_ylabels(axes[:, 0])
    one_legend(figure, axes.flat)
    return figure, (
        "Experiment G: rule reward of the training responses, greedy validation accuracy, and mean "
        "length of the training responses, by placement of the judge's score (colour) under GRPO "
        f"and GAE. {STUDENT_BAND} {data.origin('G')}"
    )


def reward_against_length(data: M2Data) -> Drawn:
    """G: the way of every arm through reward and length."""
    reward, length = (
        data.metric("G", name) for name in ("critic/score/mean", "response_length/mean")
    )
    keys = ["arm", "seed", "step"]
    both = reward.merge(length, on=keys, suffixes=("_reward", "_length"))
    figure, axes = plt.subplots(1, 2, figsize=(2 * COLUMN, 0.85 * COLUMN), sharex=True, sharey=True)
    for axis, (estimator, title) in zip(axes, ESTIMATORS.items(), strict=True):
        shown = both[both.arm.isin(estimator_arms(data, estimator))]
        for arm in estimator_arms(data, estimator):
            name, colour = placement_label(data, arm)
            _path(axis, shown[shown.arm == arm], name, colour)
        if shown.empty:
            no_data(axis)
        axis.set(title=title, xlabel="mean response length (tokens)")
    axes[0].set_ylabel("rule reward")
    mark: dict[str, Any] = {"linestyle": "none", "color": "black", "markersize": 4}
    ends = [
        Line2D([], [], marker="o", markerfacecolor="white", label="first step", **mark),
        Line2D([], [], marker="o", label="last step", **mark),
    ]
    one_legend(figure, axes, extra=ends if len(both) else ())
    return figure, (
        "Experiment G: rule reward against response length, both means over the training "
        "responses of a step. Lines: mean over seeds from the first step (open mark) to the last "
        "(filled); small dots: the seeds' last steps. A way to the right that does not go up is "
        "length without reward. "
        f"{data.origin('G')}"
    )


def _path(axis: Axes, part: pd.DataFrame, name: str, colour: str) -> None:
    """Mean over seeds at every step, with its ends marked."""
    if part.empty:
        return
    mean = part.groupby("step")[["value_length", "value_reward"]].mean()
    x, y = mean["value_length"], mean["value_reward"]
    axis.plot(x, y, color=colour, label=name, linewidth=1)
    last = part[part.step == part.step.max()]
    axis.plot(last.value_length, last.value_reward, ".", color=colour, markersize=3, alpha=0.6)
    axis.plot(x.iloc[0], y.iloc[0], "o", color=colour, markersize=4, markerfacecolor="white")
    axis.plot(x.iloc[-1], y.iloc[-1], "o", color=colour, markersize=4)

"""M2's learning curves: every arm in its own panel, with its baseline."""

import math
from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from refblend.study.report.m2.labels import arm_colour, in_words
from refblend.study.report.m2.study import REPORT, M2Study, leads, learns
from refblend.study.report.plotting.common import (
    STUDENT_BAND,
    Drawn,
    no_data,
    student_line,
    value_limits,
)
from refblend.study.report.plotting.style import BASELINE_COLOUR, COLUMN

X_LABELS = {"step": "step", "seconds": "training time (s)"}
BASELINE_LINE: dict[str, Any] = {"linestyle": (0, (4, 1.5))}
TIMED = (
    "Training time is the sum of the steps' times, without validation and start-up, on a machine "
    "that trains another run as well; a mean is drawn at the seeds' mean time. The axis ends at "
    "twice the median run's time: what was disturbed for longer goes on beyond it."
)


def learning(study: M2Study, experiment: str, x: str) -> Drawn:
    """Validation accuracy of every arm against its baseline, over steps or training time."""
    arms = study.treated(experiment)
    frame = study.of(experiment, study.accuracy)
    if x == "seconds":
        frame = frame.merge(study.seconds, on=["arm", "seed", "step"])
    limits = value_limits(frame["value"])
    figure, axes = _grid(len(arms))
    for axis, arm in zip(axes, arms, strict=False):
        baseline = study.baseline(experiment, arm)
        part = frame[frame.arm == arm]
        student_line(
            axis, frame[frame.arm == baseline], BASELINE_COLOUR, baseline, x, **BASELINE_LINE
        )
        student_line(axis, part, arm_colour(study, arm), arm, x)
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
    names = sorted({study.baseline(experiment, arm) for arm in arms})
    if arms:
        _explain(figure, names)
    against = "training time" if x == "seconds" else "the training steps"
    timed = f" {TIMED}" if x == "seconds" else ""
    return figure, (
        f"Experiment {experiment}: greedy validation accuracy over {against}; step 0 is the actor "
        "before any update. Each panel: one arm against its baseline (grey, dashed). "
        f"{STUDENT_BAND}{timed} "
        f"{study.origin(experiment, arms=[*arms, *names])}"
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


@REPORT.figure("{experiment}_learning", each=learns)
def over_steps(study: M2Study, experiment: str) -> Drawn:
    """Validation accuracy over the steps."""
    return learning(study, experiment, "step")


@REPORT.figure("{experiment}_time", each=leads)
def over_time(study: M2Study, experiment: str) -> Drawn:
    """Validation accuracy over the training time."""
    return learning(study, experiment, "seconds")

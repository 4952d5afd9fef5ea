"""M2's curves of a choice between levels: reward, accuracy and length, by level and facet."""

from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from refblend.study.report.m2.labels import level_name
from refblend.study.report.m2.study import REPORT, M2Study, chooses
from refblend.study.report.plotting.common import (
    STUDENT_BAND,
    Drawn,
    no_data,
    one_legend,
    student_line,
    value_limits,
)
from refblend.study.report.plotting.style import (
    BASELINE_COLOUR,
    COLUMN,
    PLACEMENT_COLOURS,
    STRATEGY_PALETTE,
)

ROWS = (
    ("rule reward", ("critic/score/mean",)),
    ("val. accuracy", None),
    ("length (tokens)", ("response_length/mean",)),
)


def facet_arms(study: M2Study, experiment: str) -> dict[str, list[str]]:
    """Level of the facet → its arms, the baseline first."""
    facets = study.facets(experiment)
    return {
        level: [*dict.fromkeys(study.baseline(experiment, arm) for arm in arms), *arms]
        for level, arms in facets.items()
    }


def level_style(study: M2Study, experiment: str, arm: str) -> tuple[str, str]:
    """Label and colour of an arm: its level of the choice, or that it is the baseline."""
    if arm in study.baselines(experiment):
        return study.resolved[arm].blend if not study.resolved[
            arm
        ].blends else "baseline", BASELINE_COLOUR
    choice = study.experiments[experiment].choice
    assert choice is not None, "asked of choices only"
    levels = list(
        dict.fromkeys(study.level(experiment, choice, a) for a in study.treated(experiment))
    )
    level = study.level(experiment, choice, arm)
    other = STRATEGY_PALETTE[levels.index(level) % len(STRATEGY_PALETTE)]
    return level_name(level), PLACEMENT_COLOURS.get(level, other)


@REPORT.figure("{experiment}_curves", each=chooses)
def choice_curves(study: M2Study, experiment: str) -> Drawn:
    """Reward, accuracy and response length over the steps, by the factor that is chosen."""
    facets = facet_arms(study, experiment)
    figure, axes = plt.subplots(
        len(ROWS), max(1, len(facets)), figsize=(2 * COLUMN, 1.55 * COLUMN), sharex=True,
        sharey="row", squeeze=False,
    )  # fmt: skip
    for row, (label, names) in zip(axes, ROWS, strict=True):
        frame = study.metric(experiment, *names) if names else study.of(experiment, study.accuracy)
        limits = value_limits(frame["value"])
        for axis, arms in zip(row, facets.values(), strict=False):
            for arm in arms:
                name, colour = level_style(study, experiment, arm)
                part = frame[frame.arm == arm]
                if len(part):
                    student_line(axis, part, colour, name, band=0.09)
            if not frame.arm.isin(arms).any():
                no_data(axis)
            if limits:
                axis.set_ylim(*limits)
        row[0].set_ylabel(label)
    for axis, level in zip(axes[0], facets, strict=False):
        axis.set_title(level_name(level))
    for axis in axes[-1]:
        axis.set_xlabel("step")
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.align_ylabels(axes[:, 0])
    one_legend(figure, axes.flat)
    return figure, (
        f"Experiment {experiment}: rule reward of the training responses, greedy validation "
        "accuracy, and mean length of the training responses, by "
        f"{study.experiments[experiment].choice} (colour){_panels(study, experiment)}. "
        f"{STUDENT_BAND} {study.origin(experiment)}"
    )


def _panels(study: M2Study, experiment: str) -> str:
    facet = study.experiments[experiment].facet
    return f" for each {facet} (columns)" if facet else ""


@REPORT.figure("{experiment}_reward_length", each=chooses)
def reward_against_length(study: M2Study, experiment: str) -> Drawn:
    """The path of every arm through reward and length."""
    reward, length = (
        study.metric(experiment, name) for name in ("critic/score/mean", "response_length/mean")
    )
    keys = ["arm", "seed", "step"]
    both = reward.merge(length, on=keys, suffixes=("_reward", "_length"))
    facets = facet_arms(study, experiment)
    figure, axes = plt.subplots(
        1, max(1, len(facets)), figsize=(2 * COLUMN, 0.85 * COLUMN), sharex=True, sharey=True,
        squeeze=False,
    )  # fmt: skip
    for axis, (level, arms) in zip(axes.flat, facets.items(), strict=False):
        shown = both[both.arm.isin(arms)]
        for arm in arms:
            _path(axis, shown[shown.arm == arm], *level_style(study, experiment, arm))
        if shown.empty:
            no_data(axis)
        axis.set(title=level_name(level), xlabel="mean response length (tokens)")
    axes[0, 0].set_ylabel("rule reward")
    mark: dict[str, Any] = {"linestyle": "none", "color": "black", "markersize": 4}
    ends = [
        Line2D([], [], marker="o", markerfacecolor="white", label="first step", **mark),
        Line2D([], [], marker="o", label="last step", **mark),
    ]
    one_legend(figure, axes.flat, extra=ends if len(both) else ())
    return figure, (
        f"Experiment {experiment}: rule reward against response length, both means over the "
        "training responses of a step. Lines: mean over seeds from the first step (open mark) to "
        "the last (filled); small dots: the seeds' last steps. A path to the right that does not "
        f"rise is length without reward. {study.origin(experiment)}"
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

"""M2's curves: accuracy of every arm, and reward and length by the levels of a choice."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import product
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from refblend.study.report.m2.figures_effects import FLAT
from refblend.study.report.m2.study import REPORT, M2Study, chooses, leads, learns, level_name
from refblend.study.report.plotting import common as plot
from refblend.study.report.plotting.panels import BAND, KEYS, curves
from refblend.study.report.readable import words
from refblend.study.stats.statistics import Interval, student_interval

X_LABELS = {"step": "step", "seconds": "training time (s)"}
TIMED = (
    " Training time is the sum of the steps' times, without validation and start-up, on a machine "
    "that trains another run as well; a mean is drawn at the seeds' mean time. The axis ends at "
    "twice the median run's time at the latest: what was disturbed for longer goes on beyond it."
)


@REPORT.figure("{experiment}_learning", each=learns)
def over_steps(study: M2Study, experiment: str) -> plot.Drawn:
    """Validation accuracy over the steps."""
    return learning(study, experiment, "step")


@REPORT.figure("{experiment}_time", each=leads)
def over_time(study: M2Study, experiment: str) -> plot.Drawn:
    """Validation accuracy over the training time."""
    return learning(study, experiment, "seconds")


def learning(study: M2Study, experiment: str, x: str) -> plot.Drawn:
    """Validation accuracy of every arm against its baseline, over steps or training time."""
    arms, bases = study.treated(experiment), study.baselines(experiment)
    frame, timed = study.of(experiment, study.accuracy), x == "seconds"
    if timed:
        frame = frame.merge(study.seconds, on=KEYS)

    def draw(axis: Axes, arm: str) -> None:
        base = study.baseline(experiment, arm)
        colours = {base: plot.BASELINE_COLOUR, arm: study.colour(arm)}
        curves(axis, frame, colours, x=x, dashed={base})
        if base in set(frame.arm) and arm not in set(frame.arm):
            plot.no_data(axis, "no finished run")

    labels = (X_LABELS[x], "val. accuracy (greedy)")
    figure, axes = arm_panels(study, experiment, frame, labels, draw)
    if timed and len(frame):
        spent = frame.groupby(["arm", "seed"])["seconds"].max()
        drawn = max(axis.dataLim.x1 for axis in axes)
        axes[0].set_xlim(0, min(1.05 * drawn, 2 * spent.median()))
    if arms:
        style: dict[str, Any] = {"color": plot.BASELINE_COLOUR, "linestyle": (0, (4, 1.5))}
        dashed = Line2D([], [], label=f"baseline ({', '.join(bases)})", **style)
        own = Line2D([], [], color="k", label="the panel's arm")
        plot.one_legend(figure, (), extra=[own, dashed])
    return figure, (
        f"Experiment {experiment}: greedy validation accuracy over "
        f"{'training time' if timed else 'the training steps'}; step 0 is the actor before any "
        f"update. Each panel: one arm against its baseline (grey, dashed). {BAND}"
        f"{TIMED if timed else ''} {study.origin(experiment, arms=[*arms, *bases])}"
    )


@REPORT.figure("{experiment}_difference", each=learns)
def difference(study: M2Study, experiment: str) -> plot.Drawn:
    """Every arm's validation accuracy minus its baseline's, seed by seed, over the steps."""
    accuracy = study.of(experiment, study.accuracy)[[*KEYS, "value"]]
    bases = accuracy.rename(columns={"arm": "base", "value": "of_base"})
    own_base = partial(study.baseline, experiment)
    frame = accuracy.assign(base=accuracy.arm.map(own_base))
    frame = frame[frame.arm.isin(study.treated(experiment))]
    frame = frame.merge(bases, on=["base", "seed", "step"])
    frame = frame.assign(value=frame.value - frame.of_base)
    margin = study.experiments[experiment].margin

    def draw(axis: Axes, arm: str) -> None:
        curves(axis, frame, {arm: study.colour(arm)})
        axis.axhline(0, color=plot.BASELINE_COLOUR, linewidth=0.8, linestyle="--", zorder=1)
        axis.axhspan(-margin, margin, color=plot.PALETTE[2], alpha=0.12, zorder=0, linewidth=0)

    labels = ("step", "difference to the baseline")
    limits = settled_limits(frame, margin)
    shared = len({*limits.values()}) <= 1
    figure, axes = arm_panels(study, experiment, frame, labels, draw, sharey=shared)
    for axis, arm in zip(axes, study.treated(experiment), strict=False):
        if arm in limits:
            axis.set_ylim(*limits[arm])
    return figure, (
        f"Experiment {experiment}: greedy validation accuracy of each arm minus that of its "
        f"baseline with the same seed ({', '.join(study.baselines(experiment))}), over the "
        f"training steps. {BAND} Green: within the margin of ±{margin:g}. The vertical axes hold "
        "all means, and the bands as far as they are near, from the second validation after step 0 "
        f"on; what lies beyond is cut off. {'' if shared else 'The axes of the panels differ. '}"
        f"{study.origin(experiment)}"
    )


def settled_limits(frame: pd.DataFrame, margin: float) -> dict[str, tuple[float, float]]:
    """Arm → limits of its axis of differences: all means, a margin, and the bands after the first
    validation; the same for all arms unless one would take more than :data:`FLAT` times the room.

    At the first validation seeds differ by many times what is left in the end.
    """
    steps = sorted(step for step in frame.step.unique() if step > 0)
    settled = steps[min(1, len(steps) - 1)] if steps else 0
    shown = {
        str(arm): {step: student_interval(own) for step, own in part.groupby("step")["value"]}
        for arm, part in frame.groupby("arm")
    }

    def limits(courses: Iterable[Mapping[Any, Interval]]) -> tuple[float, float]:
        found = [(step, each) for course in courses for step, each in course.items()]
        means = [each.estimate for _, each in found]
        bounds = [
            bound for step, each in found if step >= settled for bound in (each.low, each.high)
        ]
        held = plot.value_limits([*means, -margin, margin], bounds)
        assert held is not None, "there is a margin"
        return held

    own = {arm: limits([course]) for arm, course in shown.items()}
    widths = [high - low for low, high in own.values()]
    if widths and max(widths) > FLAT * min(widths):
        return own
    return dict.fromkeys(own, limits(shown.values()))


def arm_panels(
    study: M2Study,
    experiment: str,
    frame: pd.DataFrame,
    labels: tuple[str, str],
    draw: Callable[[Axes, str], None],
    sharey: bool = True,
) -> tuple[Figure, list[Axes]]:
    """A panel that ``draw`` fills for each treated arm, with common labels of its axes."""
    arms = study.treated(experiment)
    figure, axes = plot.panels(len(arms), 3, 0.45 * plot.COLUMN, sharex=True, sharey=sharey)
    for axis, arm in zip(axes, arms, strict=False):
        draw(axis, arm)
        axis.set(title=words(arm), xlabel="")
    if limits := plot.value_limits(frame["value"]):
        axes[0].set_ylim(*limits)
    if not arms:
        plot.no_data(axes[0], f"no arms of {experiment} at this scale")
    figure.supxlabel(labels[0], fontsize="medium")
    figure.supylabel(labels[1], fontsize="medium")
    return figure, axes


@REPORT.figure("{experiment}_curves", each=chooses)
def choice_curves(study: M2Study, experiment: str) -> plot.Drawn:
    """Reward, accuracy and response length over the steps, by the factor that is chosen."""
    facets = {
        level: [*dict.fromkeys(study.baseline(experiment, arm) for arm in arms), *arms]
        for level, arms in study.facets(experiment).items()
    }
    frames = {
        "rule reward": study.metric(experiment, "critic/score/mean"),
        "val. accuracy": study.of(experiment, study.accuracy),
        "length (tokens)": study.metric(experiment, "response_length/mean"),
    }
    looks = choice_looks(study, experiment)
    figure, axes = facet_rows(frames, facets, 0.52 * plot.COLUMN, looks)
    for axis, frame in zip(axes[:: len(facets)], frames.values(), strict=True):
        axis.set_ylim(plot.value_limits(frame["value"]))
    for axis, level in zip(axes, facets, strict=False):
        axis.set_title(level_name(level))
    plot.one_legend(figure, axes)
    spec = study.experiments[experiment]
    columns = f" for each {spec.facet} (columns)" if spec.facet else ""
    return figure, (
        f"Experiment {experiment}: rule reward of the training responses, greedy validation "
        "accuracy, and mean length of the training responses, by "
        f"{spec.choice} (colour){columns}. {BAND} {study.origin(experiment)}"
    )


def choice_looks(study: M2Study, experiment: str) -> dict[str, tuple[str, str]]:
    """Arm → label and colour of its level of the experiment's choice; baselines are grey."""
    choice = study.experiments[experiment].choice or ""
    levels = {arm: study.level(experiment, choice, arm) for arm in study.treated(experiment)}
    order = dict.fromkeys(levels.values())
    known = dict(zip(order, plot.STRATEGY_PALETTE * len(order), strict=False))
    known |= plot.PLACEMENT_COLOURS
    bases = [study.resolved[arm] for arm in study.baselines(experiment)]
    return {arm: (level_name(level), known[level]) for arm, level in levels.items()} | {
        arm.name: ("baseline" if arm.blends else arm.blend, plot.BASELINE_COLOUR) for arm in bases
    }


def facet_rows(
    frames: Mapping[str, pd.DataFrame],
    facets: Mapping[str, list[str]],
    height: float,
    looks: Mapping[str, tuple[str, str]],
    **options: Any,
) -> tuple[Figure, list[Axes]]:
    """A row of panels for each labelled frame, a column of curves for each facet's arms.

    ``looks``: arm → label and colour; ``options`` are those of :func:`curves`.
    """
    shared: dict[str, Any] = {"sharex": True, "sharey": "row"}
    figure, axes = plot.panels(len(frames) * len(facets), len(facets), height, **shared)
    for axis, ((label, frame), arms) in zip(
        axes, product(frames.items(), facets.values()), strict=True
    ):
        names = {arm: looks[arm][0] for arm in arms}
        named = frame[frame.arm.isin(arms)]
        named = named.assign(arm=named.arm.map(names))
        curves(axis, named, dict(looks[arm] for arm in arms), **options)
        axis.set_xlabel("step" if axis in axes[-len(facets) :] else "")
        if arms is next(iter(facets.values())):
            axis.set_ylabel(label)
    return figure, axes

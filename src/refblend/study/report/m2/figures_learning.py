"""M2's curves: accuracy of every arm, and reward and length by the levels of a choice."""

from matplotlib.lines import Line2D

from refblend.study.report.m2.labels import arm_colour, in_words, level_name
from refblend.study.report.m2.study import REPORT, M2Study, chooses, leads, learns
from refblend.study.report.plotting.common import (
    Drawn,
    no_data,
    one_legend,
    panels,
    value_limits,
)
from refblend.study.report.plotting.panels import BAND, KEYS, curves
from refblend.study.report.plotting.style import (
    BASELINE_COLOUR,
    COLUMN,
    PLACEMENT_COLOURS,
    STRATEGY_PALETTE,
)

X_LABELS = {"step": "step", "seconds": "training time (s)"}
TIMED = (
    " Training time is the sum of the steps' times, without validation and start-up, on a machine "
    "that trains another run as well; a mean is drawn at the seeds' mean time. The axis ends at "
    "twice the median run's time: what was disturbed for longer goes on beyond it."
)


@REPORT.figure("{experiment}_learning", each=learns)
def over_steps(study: M2Study, experiment: str) -> Drawn:
    """Validation accuracy over the steps."""
    return learning(study, experiment, "step")


@REPORT.figure("{experiment}_time", each=leads)
def over_time(study: M2Study, experiment: str) -> Drawn:
    """Validation accuracy over the training time."""
    return learning(study, experiment, "seconds")


def learning(study: M2Study, experiment: str, x: str) -> Drawn:
    """Validation accuracy of every arm against its baseline, over steps or training time."""
    arms, bases = study.treated(experiment), study.baselines(experiment)
    frame, timed = study.of(experiment, study.accuracy), x == "seconds"
    if timed:
        frame = frame.merge(study.seconds, on=KEYS)
    figure, axes = panels(len(arms), 3, 0.45 * COLUMN, sharex=True, sharey=True)
    for axis, arm in zip(axes, arms, strict=False):
        base = study.baseline(experiment, arm)
        colours = {base: BASELINE_COLOUR, arm: arm_colour(study, arm)}
        curves(axis, frame, colours, x=x, dashed={base})
        if base in set(frame.arm) and arm not in set(frame.arm):
            no_data(axis, "no finished run")
        axis.set(title=in_words(arm), xlabel="")
    if limits := value_limits(frame["value"]):
        axes[0].set_ylim(*limits)
    if timed and len(frame):
        axes[0].set_xlim(0, 2 * frame.groupby(["arm", "seed"])["seconds"].max().median())
    figure.supxlabel(X_LABELS[x], fontsize="medium")
    figure.supylabel("val. accuracy (greedy)", fontsize="medium")
    if arms:
        label = f"baseline ({', '.join(bases)})"
        dashed = Line2D([], [], color=BASELINE_COLOUR, linestyle=(0, (4, 1.5)), label=label)
        one_legend(figure, (), extra=[Line2D([], [], color="k", label="the panel's arm"), dashed])
    else:
        no_data(axes[0], f"no arms of {experiment} at this scale")
    return figure, (
        f"Experiment {experiment}: greedy validation accuracy over "
        f"{'training time' if timed else 'the training steps'}; step 0 is the actor before any "
        f"update. Each panel: one arm against its baseline (grey, dashed). {BAND}"
        f"{TIMED if timed else ''} {study.origin(experiment, arms=[*arms, *bases])}"
    )


@REPORT.figure("{experiment}_difference", each=learns)
def difference(study: M2Study, experiment: str) -> Drawn:
    """Every arm's validation accuracy minus its baseline's, seed by seed, over the steps."""
    arms = study.treated(experiment)
    accuracy = study.of(experiment, study.accuracy)[[*KEYS, "value"]]
    bases = accuracy.rename(columns={"arm": "base", "value": "of_base"})
    frame = accuracy.assign(base=[study.baseline(experiment, arm) for arm in accuracy.arm])
    frame = frame[frame.arm.isin(arms)].merge(bases, on=["base", "seed", "step"])
    frame = frame.assign(value=frame.value - frame.of_base)
    figure, axes = panels(len(arms), 3, 0.45 * COLUMN, sharex=True, sharey=True)
    for axis, arm in zip(axes, arms, strict=False):
        curves(axis, frame, {arm: arm_colour(study, arm)})
        axis.axhline(0, color=BASELINE_COLOUR, linewidth=0.8, linestyle="--", zorder=1)
        axis.set(title=in_words(arm), xlabel="")
    if limits := value_limits(frame["value"]):
        axes[0].set_ylim(*limits)
    if not arms:
        no_data(axes[0], f"no arms of {experiment} at this scale")
    figure.supxlabel("step", fontsize="medium")
    figure.supylabel("difference to the baseline", fontsize="medium")
    return figure, (
        f"Experiment {experiment}: greedy validation accuracy of each arm minus that of its "
        f"baseline with the same seed ({', '.join(study.baselines(experiment))}), over the "
        f"training steps. {BAND} {study.origin(experiment)}"
    )


def choice_colours(study: M2Study, experiment: str, arms: list[str]) -> dict[str, str]:
    """Arm → colour of its level of the experiment's choice; grey for baselines."""
    levels = study.choice_levels(experiment)
    known = dict(zip(levels, STRATEGY_PALETTE * len(levels), strict=False)) | PLACEMENT_COLOURS
    return {
        arm: BASELINE_COLOUR
        if arm in study.baselines(experiment)
        else known[study.choice_level(experiment, arm)]
        for arm in arms
    }


def choice_names(study: M2Study, experiment: str, arms: list[str]) -> dict[str, str]:
    """Arm → its level of the choice for the legend, or that it is the baseline."""
    return {
        arm: ("baseline" if study.resolved[arm].blends else study.resolved[arm].blend)
        if arm in study.baselines(experiment)
        else level_name(study.choice_level(experiment, arm))
        for arm in arms
    }


def facet_arms(study: M2Study, experiment: str) -> dict[str, list[str]]:
    """Level of the facet → its arms, the baseline first."""
    return {
        level: [*dict.fromkeys(study.baseline(experiment, arm) for arm in arms), *arms]
        for level, arms in study.facets(experiment).items()
    }


@REPORT.figure("{experiment}_curves", each=chooses)
def choice_curves(study: M2Study, experiment: str) -> Drawn:
    """Reward, accuracy and response length over the steps, by the factor that is chosen."""
    facets = facet_arms(study, experiment)
    frames = {
        "rule reward": study.metric(experiment, "critic/score/mean"),
        "val. accuracy": study.of(experiment, study.accuracy),
        "length (tokens)": study.metric(experiment, "response_length/mean"),
    }
    options = {"sharex": True, "sharey": "row"}
    figure, axes = panels(len(frames) * len(facets), len(facets), 0.52 * COLUMN, **options)
    places = iter(axes)
    for label, frame in frames.items():
        row = [next(places) for _ in facets]
        for axis, arms in zip(row, facets.values(), strict=True):
            names = choice_names(study, experiment, arms)
            named = frame[frame.arm.isin(arms)].assign(arm=lambda part, n=names: part.arm.map(n))
            colours = choice_colours(study, experiment, arms)
            curves(axis, named, {names[arm]: colour for arm, colour in colours.items()})
            axis.set_xlabel("step" if axis in axes[-len(facets) :] else "")
        row[0].set(ylabel=label, ylim=value_limits(frame["value"]))
    for axis, level in zip(axes, facets, strict=False):
        axis.set_title(level_name(level))
    one_legend(figure, axes)
    spec = study.experiments[experiment]
    columns = f" for each {spec.facet} (columns)" if spec.facet else ""
    return figure, (
        f"Experiment {experiment}: rule reward of the training responses, greedy validation "
        "accuracy, and mean length of the training responses, by "
        f"{spec.choice} (colour){columns}. {BAND} {study.origin(experiment)}"
    )

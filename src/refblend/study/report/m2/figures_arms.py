"""M2's figures of all arms of an experiment: accuracy beside length, profiles, difficulty."""

from typing import Any

import numpy as np

from refblend.study.design.measures import label
from refblend.study.report.m2.figures_effects import (
    INTERVALS,
    MISSED_BY_ALL,
    SHORT,
    draw_power,
    verdicts_at,
)
from refblend.study.report.m2.responses import by_difficulty, difficulties, steps_name
from refblend.study.report.m2.study import REPORT, M2Study, chooses, leads, level_name
from refblend.study.report.plotting import common as plot
from refblend.study.report.readable import words
from refblend.study.report.registry import Tables
from refblend.study.report.verdicts import is_decided


@REPORT.figure("{experiment}_reward_length", each=chooses)
def reward_length(study: M2Study, tables: Tables, experiment: str) -> plot.Drawn:
    """Two forests: what the arms gain in accuracy, and what in length."""
    arms, accuracy = study.treated(experiment), study.compared_by(experiment)
    table, decided = tables[f"{experiment}_summary"], verdicts_at(tables, experiment, accuracy)
    measures = (accuracy, "length_end")
    size = (2 * plot.COLUMN, 0.9 + 0.24 * max(3, len(arms)))
    figure, axes = plot.panels(2, 2, figsize=size, sharey=True)
    for axis, measure in zip(axes, measures, strict=True):
        rows = table[(table.measure == measure) & table["diff"].notna()].set_index("arm")
        marks = []
        for arm in (arm for arm in arms if arm in rows.index):
            gain, row, place = study.gain(experiment, arm, measure), rows.loc[arm], arms.index(arm)
            looks: dict[str, Any] = {"colour": study.colour(arm)}
            declared = decided if measure == accuracy else {}
            looks["filled"] = is_decided((arm, row["baseline"]), row, declared)
            marks.append(plot.difference_mark(place, row, gain, 0.27, **looks))
            draw_power(axis, study, experiment, marks[-1], gain)
        plot.draw_marks(axis, marks)
        plot.stretch_middle((axis, marks))
        axis.set_title(SHORT.get(measure, label(measure)), fontsize="small")
        axis.set_xlabel("difference to the baseline")
    plot.categories(axes[0], [words(arm) for arm in arms])
    axes[1].grid(visible=False, axis="y")
    return figure, (
        f"Experiment {experiment}: mean paired differences of every arm to its baseline "
        f"({', '.join(study.baselines(experiment))}), left in {label(accuracy)}, right in "
        "response length at the last step. Length without accuracy is a reward for length. "
        f"{INTERVALS} {MISSED_BY_ALL} {study.origin(experiment)}"
    )


@REPORT.figure("{experiment}_profile", each=leads)
def profile(study: M2Study, experiment: str) -> plot.Drawn:
    """Performance profiles: the share of an arm's runs above every value of the endpoint."""
    values, facets = study.endpoint(experiment), study.facets(experiment)
    options: dict[str, Any] = {"sharex": True, "sharey": True}
    figure, axes = plot.panels(len(facets), len(facets), 0.85 * plot.COLUMN, **options)
    seen = np.sort(values.stack().unique())
    for axis, (level, arms) in zip(axes, facets.items(), strict=False):
        for arm in [*study.baselines(experiment), *arms]:
            runs = values[arm].dropna()
            if len(runs):
                share = [1.0, *((runs > value).mean() for value in seen)]
                axis.step(
                    [seen[0], *seen], share, color=study.colour(arm), where="post", linewidth=1.1,
                    linestyle="--" if study.resolved[arm].control != "none" else "-",
                    label=study.resolved[arm].blend,
                )  # fmt: skip
        axis.set(title=level_name(level), ylim=(-0.02, 1.02), xlabel="")
    if not len(seen):
        plot.no_data(axes[0])
    figure.supxlabel(label(study.experiments[experiment].endpoint), fontsize="medium")
    axes[0].set_ylabel("share of runs above")
    plot.one_legend(figure, axes, ncols=5)
    return figure, (
        f"Experiment {experiment}: performance profiles (Agarwal et al. 2021), the share of an "
        "arm's runs whose endpoint exceeds a value; higher is better everywhere, and crossing "
        f"lines rank differently at different values. {study.origin(experiment)}"
    )


@REPORT.figure("{experiment}_difficulty", each=leads)
def difficulty(study: M2Study, experiment: str) -> plot.Drawn:
    """Greedy test accuracy of every arm by the number of steps that a problem takes."""
    arms = [*study.baselines(experiment), *study.treated(experiment)]
    levels, seeds = difficulties(study), study.seeds(experiment)
    size = (2 * plot.COLUMN, 0.9 + 0.2 * max(3, len(arms)))
    figure, axes = plot.panels(len(levels), max(1, len(levels)), figsize=size, sharey=True)
    for axis, level in zip(axes, levels, strict=False):
        marks = []
        for place, arm in enumerate(arms):
            values = by_difficulty(study, arm, level, seeds[arm])
            if len(values):
                colour = study.colour(arm)
                marks.append(plot.mean_mark(place, values, 2.4, beside=0.27, colour=colour))
        plot.draw_marks(axis, marks, zero=False)
        axis.set(title=steps_name(level), xlabel="test accuracy")
    plot.categories(axes[0], [words(arm) for arm in arms], fontsize="x-small")
    if not levels:
        plot.no_data(axes[0])
    return figure, (
        f"Experiment {experiment}: greedy test accuracy by the number of steps of a problem's "
        "solution. Bars: Student's 95 % interval over seeds; strokes: seeds. "
        f"{study.origin(experiment)}"
    )

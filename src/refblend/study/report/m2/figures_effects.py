"""M2's differences to the baseline: of every arm, along a sweep, and by the judge's quality; the
judges' scores."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from refblend.study.design.measures import MEASURES, label
from refblend.study.design.spec import SweepSpec
from refblend.study.report.m2.levels import level_measures, levels_of, sweep_values
from refblend.study.report.m2.study import (
    REPORT,
    M2Study,
    leads,
    learns,
    level_name,
    sweeps,
    varies_judge,
)
from refblend.study.report.plotting import common as plot
from refblend.study.report.plotting.panels import (
    MIN_BIN,
    bin_scores,
    reliability,
    score_distribution,
)
from refblend.study.report.plotting.reach import MISSED, detectable, draw_reach, missed_handle
from refblend.study.report.registry import Tables
from refblend.study.report.verdicts import decided_at, is_decided

INTERVALS = (
    f"{plot.BARS} Filled marks: decided, by the verdict of a declared contrast, else by the exact "
    "tests of the table *summary*, which are exploratory; open marks: undecided."
)
SHORT = {
    "val_best": "best validation accuracy",
    "val_auc": "validation accuracy, mean of curve",
    "final_return": "training return, last 5 steps",
}
"""Labels of measures that are too long for a panel's title."""

RULES = {
    "knee": "the knee is the smallest level within one standard error of the best",
    "pivot": "the pivot is the last level before the difference to the baseline changes its sign",
}
MISSED_BY_ALL = f"{MISSED} with so many seeds, adjusted for all comparisons."

FLAT = 3.0
"""How much wider than another panel's the differences of one may be on a shared axis."""

NAME_WIDTH = 0.24
"""Room that a judge's name needs, as a share of the panel."""


@REPORT.figure("{experiment}_forest", each=learns, preview=leads)
def forest(study: M2Study, tables: Tables, experiment: str) -> plot.Drawn:
    """Every arm against its baseline, the levels of a facet side by side."""
    labels, facets = study.labels(experiment), study.facets(experiment)
    spec, shared = study.experiments[experiment], len(set(labels.values())) < len(labels)
    names = {
        level: list(dict.fromkeys(labels[arm] for arm in (labels if shared else arms)))
        for level, arms in facets.items()
    }
    measure, table = study.compared_by(experiment), tables[f"{experiment}_summary"]
    table = table[(table.measure == measure) & table["diff"].notna()].set_index("arm")
    decided = verdicts_at(tables, experiment, measure)
    size = (
        2 * plot.COLUMN if len(facets) > 1 else 1.4 * plot.COLUMN,
        0.9 + 0.24 * max(3, *map(len, [*names.values(), ""])),
    )
    marks: dict[str, dict[str, plot.Mark]] = {level: {} for level in facets}
    for level, arm in ((level, arm) for level, arms in facets.items() for arm in arms):
        if arm in table.index:
            row, place = table.loc[arm], names[level].index(labels[arm])
            filled = is_decided((arm, row["baseline"]), row, decided)
            looks: dict[str, Any] = {"colour": study.colour(arm), "filled": filled}
            gain = study.gain(experiment, arm, measure)
            marks[level][arm] = plot.difference_mark(place, row, gain, 0.27, **looks)
    limits = facet_limits(marks)
    one_axis = len(set(limits.values())) <= 1
    across = {"sharex": one_axis, "sharey": shared}
    figure, axes = plot.panels(len(facets), len(facets), figsize=size, **across)
    for axis, (level, drawn) in zip(axes, marks.items(), strict=False):
        plot.categories(axis, names[level])
        axis.xaxis.set_major_locator(MaxNLocator(5))
        if drawn:
            plot.draw_marks(axis, list(drawn.values()), limits[level])
            on_axis = marks.values() if one_axis else (drawn,)
            plot.stretch_middle((axis, [mark for each in on_axis for mark in each.values()]))
        places = {names[level].index(labels[arm]) for arm in facets[level]}
        for place in places - {mark.place for mark in drawn.values()}:
            plot.no_data(axis, "no pair of runs", place=place, fontsize="x-small")
        for arm, mark in drawn.items():
            draw_power(axis, study, experiment, mark, study.gain(experiment, arm, measure))
        axis.set_title(f"{spec.facet} {level_name(level)}" if level else "")
        axis.set_xlabel("difference to the baseline")
    if not labels:
        plot.no_data(axes[0], f"no arms of {experiment} at this scale")
    lines = (("95 % interval", 2.4), ("of all comparisons together", 0.8))
    handles = [Line2D([], [], color=plot.INK, linewidth=width, label=text) for text, width in lines]
    handles += [
        Line2D([], [], color=plot.INK, linewidth=0, marker="|", markersize=5, label="seeds"),
        missed_handle(),
    ]
    plot.one_legend(figure, (), ncols=2, extra=handles)
    return figure, (
        f"Experiment {experiment}: mean paired difference to the baseline "
        f"({', '.join(study.baselines(experiment))}) in {label(measure)}. {INTERVALS} "
        f"{MISSED_BY_ALL} {'' if one_axis else 'The axes of the panels differ. '}"
        f"{study.origin(experiment)}"
    )


def verdicts_at(tables: Tables, experiment: str, measure: str) -> dict[tuple[str, str], str]:
    """The verdicts on an experiment's contrasts by a measure, by their arms."""
    return decided_at(tables["verdicts"].query("experiment == @experiment"), measure)


def facet_limits(
    marks: Mapping[str, Mapping[str, plot.Mark]],
) -> dict[str, tuple[float, float] | None]:
    """Limits of each panel: shared unless one would take more than :data:`FLAT` times the room."""
    own = {level: plot.mark_limits(list(drawn.values())) for level, drawn in marks.items()}
    widths = [high - low for low, high in filter(None, own.values())]
    if widths and max(widths) > FLAT * min(widths):
        return own
    shared = plot.mark_limits([mark for drawn in marks.values() for mark in drawn.values()])
    return dict.fromkeys(marks, shared)


def draw_power(axis: Axes, study: M2Study, experiment: str, mark: plot.Mark, gain: Any) -> None:
    """Behind a mark the differences that so many pairs of seeds cannot detect, and their number."""
    spec, pairs = study.experiments[experiment], len(gain)
    deviation = float(gain.std(ddof=1)) if pairs > 1 else 0.0
    family = len(study.family(experiment).pairs)
    draw_reach(axis, mark.place, detectable(deviation, pairs, family, spec.alpha), pairs)


@REPORT.figure("{experiment}_sensitivity", each=sweeps)
def sensitivity(study: M2Study, tables: Tables, experiment: str) -> plot.Drawn:
    """Every measure of a sweep against its parameter."""
    sweep = study.sweep(experiment)
    name, levels = sweep.key.rpartition(".")[2], levels_of(study, experiment)
    measures = level_measures(study, experiment)
    figure, axes = plot.panels(len(measures), 2, sharex=True)
    for axis, measure in zip(axes, measures, strict=True):
        title = [SHORT.get(measure, label(measure))]
        axis.set_ylabel(MEASURES[measure].unit)
        axis.set_xlabel(name if axis in axes[-2:] else "")
        if levels:
            _sweep_panel(axis, study, tables, experiment, measure)
            title += _chosen(axis, tables["knee_pivot"], experiment, sweep, measure)
        else:
            plot.no_data(axis, f"no arms of {experiment} at this scale")
        axis.set_title("\n".join(title), fontsize="small")
    plot.one_legend(figure, axes)
    shown = [study.experiments[experiment].baseline, *levels.values()]
    places = {study.resolved[arm].placement for arm in levels.values()}
    where = " and ".join(level_name(place) for place in sorted(places)) or "none"
    return figure, (
        f"Experiment {experiment}: each measure against {name}, placement {where}, all else equal, "
        "of the seeds that every level has. Bars: Student's 95 % interval, an arrow head where it "
        "goes on beyond the panel; thin lines: seeds; grey: mean of the baseline. Vertical "
        f"line and title: the {sweep.rule} with the share of resampled seeds that choose it; "
        f"{RULES[sweep.rule]}. Not identifiable where the interval of that choice is the whole "
        f"range, or too little was run. {study.origin(experiment, arms=shown)}"
    )


def _sweep_panel(axis: Axes, study: M2Study, tables: Tables, experiment: str, measure: str) -> None:
    """One measure: seeds, means and baseline."""
    values, base = sweep_values(study, experiment, measure)
    means = tables["levels"].query("experiment == @experiment and measure == @measure")
    levels = list(values.columns)
    gap = min(np.diff(levels)) if len(levels) > 1 else 1.0
    axis.set_xticks(levels)
    axis.set_xlim(levels[0] - 0.4 * gap, levels[-1] + 0.4 * gap)
    marks = [
        plot.Mark(
            row.level, row.mean, ((row.low, row.high, 1.6),), colour=plot.PALETTE[0], label="mean"
        )
        for row in means[means["mean"].notna()].itertuples()
    ]
    seeds = plot.Mark(np.nan, base.mean(), seeds=values.to_numpy().ravel())
    limits = plot.mark_limits([*marks, seeds], zero=False)
    if not marks or limits is None:
        plot.no_data(axis)
        return
    plot.draw_marks(axis, marks, limits, upright=True, zero=False)
    axis.plot(levels, values.T, ".-", color=plot.PALETTE[0], linewidth=0.5, alpha=0.5, markersize=2)
    axis.plot(means.level, means["mean"], color=plot.PALETTE[0])
    if base.notna().any():
        style: dict[str, Any] = {
            "color": plot.BASELINE_COLOUR,
            "linestyle": "--",
            "linewidth": 1,
            "zorder": 1,
        }
        axis.axhline(base.mean(), label="baseline", **style)


def _chosen(
    axis: Axes, table: pd.DataFrame, experiment: str, sweep: SweepSpec, measure: str
) -> list[str]:
    """Mark the chosen level, and say for the title which it is or that none is identifiable."""
    rows = table.query("experiment == @experiment and measure == @measure")
    said = []
    for row in rows[rows.n > 0].itertuples():
        if row.identifiable:
            said.append(f"{sweep.rule} {row.chosen:g} ({row.stability:.0%} of resamples)")
            axis.axvline(row.chosen, color=plot.WRONG_COLOUR, linewidth=1.2, zorder=1)
        else:
            said.append(f"{sweep.rule} not identifiable")
    return said


@REPORT.figure("{experiment}_judge_quality", each=varies_judge)
def judge_quality(study: M2Study, tables: Tables, experiment: str) -> plot.Drawn:
    """Difference to the baseline against the judge's AUC within a prompt, by strategy."""
    auc = tables[f"{experiment}_judge_auc"].pivot(index="seed", columns="arm", values="within")
    auc, measure = auc.reindex(columns=study.arms(experiment)), study.compared_by(experiment)
    gains = {
        arm: study.gain(experiment, arm, measure).reindex(auc[arm].dropna().index).dropna()
        for arm in study.subjects(experiment)
    }
    arms = {arm: study.resolved[arm] for arm, gain in gains.items() if len(gain)}
    means = {arm: auc.loc[gains[arm].index, arm].mean() for arm in arms}
    strategies = list(dict.fromkeys(arm.strategy for arm in arms.values()))
    bases = [study.baseline(experiment, arm) for arm in study.subjects(experiment)]
    # Two marks of almost one AUC are set apart.
    shift = max(0.02 * (max(means.values()) - min(means.values())), 0.002) if means else 0.0
    marks = []
    for name, arm in arms.items():
        number = strategies.index(arm.strategy)
        place = means[name] + (2 * number - len(strategies) + 1) * shift
        looks: dict[str, Any] = {"colour": study.colour(name), "shape": "osD^v"[number % 5]}
        looks["label"] = f"{arm.strategy} weight"
        marks.append(plot.mean_mark(place, gains[name], 1.6, **looks))
    figure, (axis,) = plot.panels(1, 1, figsize=(plot.COLUMN, 0.95 * plot.COLUMN))
    plot.draw_marks(axis, marks, upright=True)
    axis.set(xlabel="judge's AUC within a prompt", ylabel="difference to the baseline")
    judges = pd.Series(means).groupby(lambda name: arms[name].judge).mean().sort_values()
    _name_judges(axis, judges)
    plot.one_legend(figure, [axis])
    return figure, (
        f"Experiment {experiment}: mean paired difference to the baseline in "
        f"{label(measure)} against the judge's AUC among the kept "
        "training responses to the same prompt (mean over seeds), of the arms that its contrasts "
        "compare, by strategy. Bars: Student's 95 % interval, an arrow head where it goes on "
        "beyond the panel; small strokes: seeds. Where two means have almost one AUC they are set "
        f"apart. {study.origin(experiment, arms=[*study.subjects(experiment), *bases])}"
    )


def _name_judges(axis: Axes, judges: pd.Series) -> None:
    """The judges' names above the panel, each with a line to the mean AUC of its arms."""
    (left, right), place = axis.get_xlim(), -np.inf
    for after, (judge, mean) in zip(range(len(judges))[::-1], judges.items(), strict=True):
        room = min((mean - left) / (right - left), 1.0 - NAME_WIDTH * after)
        place = max(room, place + NAME_WIDTH)
        axis.annotate(
            judge, (mean, 1.0), xycoords=axis.get_xaxis_transform(), xytext=(place, 1.06),
            textcoords="axes fraction", ha="center", va="bottom", fontsize="small",
            arrowprops={"arrowstyle": "-", "linewidth": 0.5, "color": "#808080", "shrinkB": 0},
        )  # fmt: skip


@REPORT.figure("{experiment}_judges", each=varies_judge)
def judges_in_training(study: M2Study, tables: Tables, experiment: str) -> plot.Drawn:
    """Distribution of the scores by correctness, and their calibration, for every judge."""
    frame = study.of(experiment, study.responses)
    valid = frame[frame.judge_valid.fillna(False).astype(bool)]
    judges = study.judges(experiment)
    options = {"sharex": True, "sharey": "row"}
    figure, axes = plot.panels(2 * len(judges), len(judges), 0.65 * plot.COLUMN, **options)
    above, below = axes[: len(judges)], axes[len(judges) :]
    within = tables[f"{experiment}_judge_auc"].groupby("judge").within.mean()
    for top, bottom, (judge, arms) in zip(above, below, judges.items(), strict=False):
        part = valid[valid.arm.isin(arms)]
        score_distribution(top, part)
        top.set(title=f"{judge} judge, {len(part)} scores", xlabel="")
        bins = bin_scores(part.judge_score, part.acc)
        reliability(bottom, [("", bins, "#333333")] if len(part) else [])
        mean = within.get(judge, np.nan)
        title = "" if np.isnan(mean) else f"AUC within a prompt {mean:.3f}"
        bottom.set_title(title, fontsize="small")
    above[0].set_ylabel("share of responses")
    below[0].set_ylabel("share of right answers")
    plot.one_legend(figure, above)
    invalid = f"{1 - len(valid) / len(frame):.1%}" if len(frame) else "none"
    return figure, (
        f"Experiment {experiment}: the judges' valid scores of the kept training responses, all "
        "seeds and all arms with that judge together. Above: their distribution, right and wrong "
        "answers apart, as shares of all. Below: share of right answers in ten equal bins of the "
        f"score (bins of fewer than {MIN_BIN} responses are left out; on the dashed line a score "
        "is the chance that the answer is right), and the AUC among the responses to the same "
        f"prompt, mean over runs. Without a valid score: {invalid} of {len(frame)} kept responses. "
        f"{study.origin(experiment, arms=study.treated(experiment))}"
    )

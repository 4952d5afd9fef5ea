"""Figures of experiments, one function each; :mod:`.build` says which of them a report has.

A function gets the study, the report's tables and, where it is about one, an experiment's name.
"""

import textwrap
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from refblend.scoring.measure.quality import reliability_table
from refblend.study.design.measures import MEASURES, label
from refblend.study.report import style as plot
from refblend.study.report.readable import plus_minus, words
from refblend.study.report.study import SCORING, Study
from refblend.study.report.summary import LEVEL_MEASURES, decisive_first, sweep_values
from refblend.study.report.verdicts import decided_at
from refblend.study.stats.verdicts import VERDICTS

Tables = dict[str, pd.DataFrame]

VERDICT_COLOURS = (plot.PALETTE[0], plot.PALETTE[3], plot.PALETTE[2], plot.BASELINE_COLOUR)
LOOKS = dict(zip(VERDICTS, zip(VERDICT_COLOURS, "^vso", strict=True), strict=True))
"""Colour and shape of each verdict."""
WIDEST = 4.0
"""Margins on either side beyond which the axis of verdicts is logarithmic."""
LEVEL_NAMES = {"per_token_mean": "per-token mean", "grpo": "GRPO", "gae": "GAE"}
LEVEL_NAMES |= {"global_pool": "shared pool", "judge_pool": "dedicated pool"}
LEVEL_NAMES |= {"True": "on", "False": "off"}
MIN_BIN = 10
"""Responses that a bin of a reliability panel needs to be drawn."""


def level_name(level: str) -> str:
    """A level as figures show it."""
    return LEVEL_NAMES.get(level, words(level))


def colour_of(study: Study, arm: str) -> str:
    """The colour of an arm's blend: grey for a baseline, another one for what the user added."""
    blend, blends = study.resolved[arm].blend, [each.blend for each in study.resolved.values()]
    if blend in plot.BLEND_COLOURS:
        return plot.BLEND_COLOURS[blend]
    if any(arm in study.baselines(name) for name in study.experiments):
        return plot.BASELINE_COLOUR
    own = [each for each in dict.fromkeys(blends) if each not in plot.BLEND_COLOURS]
    return plot.STRATEGY_PALETTE[-1 - own.index(blend) % len(plot.STRATEGY_PALETTE)]


def verdict_forest(study: Study, tables: Tables) -> plot.Drawn:
    """Every primary contrast in units of its margin, better to the right."""
    table = tables["verdicts"]
    table = table[table.primary].reset_index(drop=True)
    labels = table.treated + " − " + table.reference
    labels = labels.where(~labels.duplicated(keep=False), labels + " (" + table.contrast + ")")
    size = (2 * plot.COLUMN, 0.9 + 0.17 * max(4, len(table)))
    figure, (axis,) = plot.panels(1, 1, figsize=size)
    plot.categories(axis, list(labels), fontsize="xx-small")
    marks, missed = [], dict[str, Any](color="#e4e4e4", linewidth=7)
    for place, row in enumerate(table.itertuples()):
        unit = (1.0 if MEASURES[row.endpoint].higher_is_better else -1.0) / row.margin
        if np.isfinite(row.estimate):
            bar = (*sorted((row.low * unit, row.high * unit)), 1.6)
            colour, shape = LOOKS[row.verdict]
            look = {"marker": shape}
            marks.append(plot.Mark(place, row.estimate * unit, [bar], colour=colour, look=look))
        if row.least_p_adjusted > row.alpha:
            axis.axhline(place, zorder=0, **missed)
        elif np.isfinite(row.detectable):
            half = row.detectable / row.margin
            axis.hlines(place, -half, half, zorder=0, **missed)
    reach = max([2.0, *(abs(edge) for mark in marks for edge in mark.bars[0][:2])])
    reach = min(reach * 1.05, max([WIDEST, *(1.1 * abs(mark.mean) for mark in marks)]))
    wide = reach > 2 * WIDEST  # a few large differences would leave the others no room
    plot.draw_marks(axis, marks, (-reach * (1.4 if wide else 1), reach * (1.4 if wide else 1)))
    axis.axvspan(-1, 1, color=plot.PALETTE[2], alpha=0.12, zorder=0, linewidth=0)
    axis.set_xlabel("difference ÷ margin, better to the right")
    if wide:
        plot.symmetric_log(axis, WIDEST, (1, 2, 4, 10, 100, 1000))
    line: dict[str, Any] = {"linestyle": "none", "markersize": 5}
    legend: list[Any] = [
        Line2D([], [], color=colour, marker=shape, label=name, **line)
        for name, (colour, shape) in LOOKS.items()
    ]
    legend.append(Patch(color=plot.PALETTE[2], alpha=0.2, label="within the margin"))
    legend.append(Line2D([], [], label="not detectable", **missed))
    levels = sorted({1 - spec.alpha for spec in study.experiments.values()})
    plot.one_legend(figure, (), ncols=3, extra=legend)
    return figure, (
        "The primary contrasts in units of their margins. Bars: "
        f"{' or '.join(f'{100 * level:g} %' for level in levels)} intervals, not adjusted; mark "
        "and colour: the verdict, adjusted within the experiment. Grey: true differences this "
        "small would be missed more than one time in five."
    )


def forest(study: Study, tables: Tables, experiment: str) -> plot.Drawn:
    """Every arm against its baseline, a panel for each level of the facet."""
    facets, measure = study.facets(experiment), study.compared_by(experiment)
    spec, table = study.experiments[experiment], tables[f"{experiment}_summary"]
    rows = table[(table.measure == measure) & table["diff"].notna()].set_index("arm")
    verdicts = tables["verdicts"].query("experiment == @experiment")
    decided = decided_at(verdicts, measure)
    rooms = 0.9 + 0.24 * max(3, *map(len, facets.values()), 0)
    width = (2 if len(facets) > 1 else 1.4) * plot.COLUMN
    figure, axes = plot.panels(len(facets), len(facets), figsize=(width, rooms))
    for axis, (level, arms) in zip(axes, facets.items(), strict=False):
        marks, shown = [], [arm for arm in arms if arm in rows.index]
        for place, arm in enumerate(shown):
            row = rows.loc[arm]
            bars = [
                (row[f"{kind}_low"], row[f"{kind}_high"], width)
                for kind, width in (("diff_family", 0.8), ("diff", 2.4))
            ]
            known = decided.get((str(arm), row["baseline"]), "undecided") != "undecided"
            colour = colour_of(study, arm)
            look = {"markerfacecolor": colour if known else "white"}
            gain = study.gain(experiment, arm, measure)
            marks.append(plot.Mark(place, row["diff"], bars, gain, 0.27, colour, look))
            style: dict[str, Any] = {"va": "center", "fontsize": "x-small", "color": plot.INK}
            style["transform"] = axis.get_yaxis_transform()
            axis.text(1.03, place, f"n = {len(gain)}", **style)
        plot.categories(axis, [words(arm) for arm in shown], fontsize="x-small")
        plot.draw_marks(axis, marks)
        axis.xaxis.set_major_locator(MaxNLocator(3 if len(facets) > 1 else 5))
        axis.set_title(f"{words(spec.facet or '')} {level_name(level)}" if level else "")
        axis.set_xlabel("difference to the baseline")
    bases = ", ".join(f"`{arm}`" for arm in study.baselines(experiment))
    return figure, (
        f"Paired differences to {bases}: {label(measure)}. Thick bars: "
        f"{100 * (1 - spec.alpha):g} % intervals; thin bars: "
        "the same for all comparisons together; ticks: single seeds. Filled: the declared verdict "
        "is better, worse or equivalent."
    )


def learning(study: Study, tables: Tables, experiment: str) -> plot.Drawn:
    """Accuracy over the steps: every arm against its baseline, greedy and sampled."""
    arms, greedy = study.treated(experiment), study.of(experiment, study.accuracy)
    sampled = study.metric(experiment, "critic/acc/mean")
    height = (0.45 if len(arms) > 1 else 0.8) * plot.COLUMN
    figure, axes = plot.panels(len(arms), 3, height, sharex=True, sharey=True)
    for axis, arm in zip(axes, arms, strict=False):
        base = study.baseline(experiment, arm)
        colours = {base: plot.BASELINE_COLOUR, arm: colour_of(study, arm)}
        plot.curves(axis, greedy, colours, dashed={base})
        for name, colour in colours.items():
            means = sampled[sampled.arm == name].groupby("step")["value"].mean()
            axis.plot(means.index, means, ":", linewidth=1, color=colour)
            points = greedy[greedy.arm == name].groupby("step")["value"].mean()
            axis.plot(points.index, points, ".", markersize=3, color=colour)
        axis.set_title(words(arm))
    if limits := plot.value_limits([*greedy["value"], *sampled["value"]]):
        axes[0].set_ylim(*limits)
    figure.supxlabel("step", fontsize="medium")
    figure.supylabel("accuracy", fontsize="medium")
    grey: dict[str, Any] = {"color": plot.BASELINE_COLOUR, "linestyle": (0, (4, 1.5))}
    extra = [
        Line2D([], [], color="k", marker=".", label="greedy, validation"),
        Line2D([], [], color="k", linestyle=":", label="sampled, training"),
        Line2D([], [], label=f"baseline ({', '.join(study.baselines(experiment))})", **grey),
    ]
    plot.one_legend(figure, (), extra=extra)
    return figure, (
        "Greedy validation accuracy (dots: each validation; step 0: before training) and sampled "
        "training accuracy of each arm against its baseline. Lines: means; bands: 95 % intervals."
    )


def sensitivity(study: Study, tables: Tables, experiment: str) -> plot.Drawn:
    """Every measure of a sweep against its parameter."""
    sweep = study.experiments[experiment].sweep
    measures = decisive_first(study, experiment, LEVEL_MEASURES)
    assert sweep is not None, "drawn of sweeps only"
    name, chosen = sweep.key.rpartition(".")[2], tables["knee_pivot"]
    figure, axes = plot.panels(len(measures), 3, 0.7 * plot.COLUMN, sharex=True)
    for axis, measure in zip(axes, measures, strict=True):
        title = textwrap.wrap(MEASURES[measure].label, 30)
        _sweep_panel(axis, study, experiment, measure)
        rows = chosen.query("experiment == @experiment and measure == @measure and n > 0")
        for row in rows.itertuples():
            if row.identifiable:
                title.append(f"{sweep.rule} {row.chosen:g} ({row.stability:.0%} of resamples)")
                axis.axvline(row.chosen, color=plot.WRONG_COLOUR, linewidth=1.2, zorder=1)
            else:
                title.append(f"{sweep.rule} not identifiable")
        axis.set_title("\n".join(title), fontsize="small")
        axis.set_ylabel(MEASURES[measure].unit)
        axis.set_xlabel(words(name) if axis in axes[-3:] else "")  # as the ticks' labels
    plot.one_legend(figure, axes)
    return figure, (
        f"Each measure against {words(name)}, all else equal, of the seeds that every level has. "
        "Bars: 95 % intervals; thin lines: seeds; grey: the baseline's mean; vertical line and "
        f"title: the {sweep.rule} (docs/explanation/statistics.md)."
    )


def _sweep_panel(axis: Axes, study: Study, experiment: str, measure: str) -> None:
    """One measure: seeds, means and baseline."""
    values, base = sweep_values(study, experiment, measure)
    levels, colour = list(values.columns), plot.PALETTE[0]
    axis.set_xticks(levels)
    known = [level for level in levels if values[level].notna().any()]
    marks = [plot.mean_mark(each, values[each].dropna(), 1.6, colour=colour) for each in known]
    edges = [edge for mark in marks for edge in mark.bars[0][:2]]
    limits = plot.value_limits([*values.to_numpy().ravel(), base.mean()], edges)
    plot.draw_marks(axis, marks, limits, upright=True, zero=False)
    axis.plot(levels, values.T, ".-", color=colour, linewidth=0.5, alpha=0.5, markersize=2)
    axis.plot(levels, values.mean(), color=colour, label="mean")
    if base.notna().any():
        style: dict[str, Any] = {"color": plot.BASELINE_COLOUR, "linestyle": "--", "linewidth": 1}
        axis.axhline(base.mean(), label="baseline", zorder=1, **style)


def judge_quality(study: Study, tables: Tables, experiment: str) -> plot.Drawn:
    """Difference to the baseline against the judge's AUC within a prompt, by strategy."""
    auc = tables[f"{experiment}_judge_auc"].pivot(index="seed", columns="arm", values="within")
    figure = _gains_against(study, experiment, auc, "judge's AUC within a prompt")
    return figure, (
        f"Paired difference to the baseline ({label(study.compared_by(experiment))}) against the "
        "judge's AUC among the kept training responses to the same prompt. Bars: 95 % intervals; "
        "ticks: single seeds."
    )


def dose(study: Study, tables: Tables, experiment: str) -> plot.Drawn:
    """Difference to the baseline against the weight that runs had, by strategy."""
    weights = study.wide(experiment, "weight_mean")
    figure = _gains_against(study, experiment, weights, "blending weight, mean over a run")
    slopes = [
        f"{label(row.measure)} {plus_minus(row.slope, row.low, row.high, row.runs)} "
        f"(lack of fit: p = {row.p_lack_of_fit:.2f})"
        for row in tables[f"{experiment}_dose"].itertuples()
    ]
    return figure, (
        f"Paired difference to the baseline ({label(study.compared_by(experiment))}) against the "
        "mean weight. Bars: 95 % intervals; ticks: single seeds. Change per unit of weight, over "
        f"all arms: {'; '.join(slopes)}."
    )


def _gains_against(study: Study, experiment: str, places: pd.DataFrame, title: str) -> Figure:
    """Differences to the baseline of arms at their mean place; a row per seed, a column per arm."""
    marks, treated = [], study.treated(experiment)
    strategies = list(dict.fromkeys(study.resolved[arm].score.strategy for arm in treated))
    for arm in treated:
        number = strategies.index(study.resolved[arm].score.strategy)
        gain = study.gain(experiment, arm, study.compared_by(experiment))
        known = places.reindex(gain.index, columns=[arm])[arm].dropna()
        if len(known):
            look = {"marker": "osD^v"[number % 5], "label": f"{strategies[number]} weight"}
            place, colour = float(known.mean()) + 0.004 * number, colour_of(study, arm)
            mark = plot.mean_mark(place, gain[known.index], 1.6, colour=colour, look=look)
            marks.append(mark)
    figure, (axis,) = plot.panels(1, 1, figsize=(1.4 * plot.COLUMN, 0.95 * plot.COLUMN))
    plot.draw_marks(axis, marks, upright=True)
    axis.set(xlabel=title, ylabel="difference to the baseline")
    plot.one_legend(figure, [axis])
    return figure


def judges(study: Study, tables: Tables, experiment: str) -> plot.Drawn:
    """Distribution of the scores by correctness, and their calibration, for every judge."""
    frame = study.of(experiment, study.responses)
    frame = frame[frame.judge_valid.fillna(False).astype(bool)]
    within = tables[f"{experiment}_judge_auc"].groupby("judge").within.mean().sort_values()
    own = {arm: study.resolved[arm].judge for arm in study.treated(experiment)}
    count = max(1, len(within))
    figure, axes = plot.panels(2 * count, count, 0.65 * plot.COLUMN, sharex=True, sharey="row")
    for top, bottom, (judge, auc) in zip(axes, axes[count:], within.items(), strict=False):
        part = frame[frame.arm.map(own) == judge]
        score_distribution(top, part)
        bins = reliability_table(part.assign(valid=True, label=part.acc), by="judge_score")
        reliability(bottom, [("", bins, plot.INK)])
        top.set(title=f"{judge} judge", xlabel="")
        bottom.set_title(f"AUC within a prompt {auc:.3f}", fontsize="small")
    axes[0].set_ylabel("share of responses")
    axes[count].set_ylabel("share of right answers")
    plot.one_legend(figure, axes[:count])
    return figure, (
        "The judges' valid scores of the kept training responses, and below the share of right "
        "answers in ten equal bins of the score (dashed: perfect calibration)."
    )


def reliability(axis: Axes, lines: list[tuple[str, pd.DataFrame, str | None]]) -> None:
    """Share of right answers against the score; on the dashed line the two are equal.

    Lines: label, bins (columns score, accuracy, count) and colour; small bins are left out.
    """
    axis.plot([0, 1], [0, 1], color="#999999", linewidth=0.8, linestyle="--")
    axis.set(xlabel="mean judge score", xlim=(0, 1), ylim=(-0.02, 1.02))
    for name, bins, colour in lines:
        shown = bins[bins["count"] >= MIN_BIN]
        axis.plot(shown.score, shown.accuracy, "o-", markersize=3, color=colour, label=name)


def score_distribution(axis: Axes, responses: pd.DataFrame) -> None:
    """Valid scores (columns judge_score, acc) of right and wrong answers, as shares of all."""
    axis.set(xlabel="judge score", xlim=(0, 1))
    for right, (name, colour) in enumerate(
        (("wrong", plot.WRONG_COLOUR), ("right", plot.RIGHT_COLOUR))
    ):
        scores = responses[responses.acc.ge(0.5).eq(right)].judge_score
        if len(scores):
            weights = np.full(len(scores), 1 / len(responses))
            look: dict[str, Any] = {"color": colour, "label": f"{name} answers"}
            look |= {"histtype": "step", "linewidth": 1.4} if right else {"alpha": 0.5}
            axis.hist(scores, bins=10, range=(0, 1), weights=weights, **look)
    if responses.empty:
        plot.no_data(axis)


def costs(study: Study, tables: Tables, experiment: str) -> plot.Drawn:
    """What a step costs by the experiment's factors, jobs alone on the machine."""
    spec, table = study.experiments[experiment], tables[f"{experiment}_costs"]
    judge = any(key.startswith(SCORING) for key in spec.factors.values())
    measures = ["step_seconds", "judge_seconds" if judge else "memory_gb", "throughput"]
    place, *others = list(spec.factors)[::-1]
    line = others[-1] if others else None
    figure, axes = plot.panels(3, 3, 0.85 * plot.COLUMN)
    for axis, measure in zip(axes, measures, strict=False):
        part = table[(table.measure == measure) & table["mean"].notna()]
        _by_factors(axis, part, study.wide(experiment, measure), place, line)
        axis.set(xlabel=words(place), ylabel=label(measure))
    plot.one_legend(figure, axes)
    return figure, (
        "Mean over seeds of a run's median over its steps (memory: its peak), jobs alone on the "
        "machine. Bars: 95 % intervals; ticks: single seeds."
    )


def _by_factors(
    axis: Axes, table: pd.DataFrame, values: pd.DataFrame, place: str, line: str | None
) -> None:
    """Arms at the place and in the colour of their two factors.

    The table has columns arm and the factors, ``values`` a row per seed and a column per arm.
    """
    places = list(dict.fromkeys(table[place]))
    lines = list(dict.fromkeys(table[line])) if line else [""]
    marks = []
    for number, level in enumerate(lines):
        part = table[table[line] == level] if line else table
        colour = VERDICT_COLOURS[number % 3]
        look = {"marker": "os^"[number % 3]}
        look |= {"label": f"{words(line)} {level_name(str(level))}"} if line else {}
        shift = 0.2 * (number - (len(lines) - 1) / 2)
        style = {"beside": 0.07, "colour": colour, "look": look}
        mine = [
            plot.mean_mark(places.index(at) + shift, values[arm].dropna(), 1.2, **style)
            for arm, at in zip(part.arm, part[place], strict=True)
        ]
        means = [mark.place for mark in mine], [mark.mean for mark in mine]
        axis.plot(*means, color=colour, linewidth=1)
        marks += mine
    plot.categories(axis, [level_name(str(level)) for level in places], upright=True)
    plot.draw_marks(axis, marks, upright=True, zero=False)

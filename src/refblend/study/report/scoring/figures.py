"""Figures of the scoring study. Each function draws one and explains it in its caption."""

from typing import Any

import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from refblend.study.report.plotting import common as plot
from refblend.study.report.plotting.panels import MIN_BIN, reliability
from refblend.study.report.registry import Tables
from refblend.study.report.scoring.study import REPORT, ScoringStudy, commits, judge_name
from refblend.study.runs.model_quality import reliability_bins

ARM_NAMES = {"few_shot": "few-shot", "clip_on": "on", "clip_off": "off"}
EXPERIMENTS = {"D1": "D1: prompt", "D2": "D2: new tokens", "D3": "D3: clipping"}
SHOWN_ATTACKS = 25


@REPORT.figure("robustness", preview=True)
def robustness(study: ScoringStudy, tables: Tables) -> plot.Drawn:
    """Share of valid scores that are not zero, for each configuration and length."""
    arms, lengths = tables["robustness"], tables["robustness_by_length"]
    figure, axes = plot.panels(3, 3, sharey=True, width_ratios=[2, 3, 2])
    known = list(dict.fromkeys(lengths["length"]))
    for axis, (experiment, title) in zip(axes, EXPERIMENTS.items(), strict=True):
        part = arms[arms.experiment == experiment]
        places = {arm: place for place, arm in enumerate(part.arm)}
        axis.bar(list(places.values()), part.nonzero_rate, color="#cccccc", width=0.6, label="all")
        for number, length in enumerate(known):
            rows = lengths[(lengths.experiment == experiment) & (lengths.length == length)]
            shift = 0.15 * (number - (len(known) - 1) / 2)
            looks: dict[str, Any] = {
                "marker": "o^s"[number % 3],
                "color": plot.PALETTE[number],
                "s": 16,
            }
            places_of = rows.arm.map(places) + shift
            name = length.replace("_", " ")
            axis.scatter(places_of, rows.nonzero_rate, zorder=3, label=name, **looks)
        plot.categories(
            axis,
            [ARM_NAMES.get(arm, arm.removeprefix("new_tokens_")) for arm in places],
            upright=True,
        )
        axis.set(title=title, ylim=(-0.03, 1.05))
    axes[0].set_ylabel("non-zero rate")
    plot.one_legend(figure, axes)
    over = arms[arms.overlength > 0]
    lacking = ", ".join(f"{row.arm} {row.overlength}" for row in over.itertuples())
    return figure, (
        "Experiment D: share of responses whose score is valid and not zero against the "
        "configuration of the judge. Bars: all responses; markers: responses by length. Each panel "
        "changes one thing of the base (few-shot prompt, 64 new tokens, clipping on). Responses "
        f"not submitted because they are too long: {lacking or 'none'}. "
        f"{origin(study, study.robustness)}"
    )


@REPORT.figure("attacks")
def attacks(study: ScoringStudy, tables: Tables) -> plot.Drawn:
    """Lift of the most effective attacks with its interval."""
    table = tables["attacks"]
    shown = table.head(SHOWN_ATTACKS)
    size = (1.7 * plot.COLUMN, 0.3 + 0.14 * len(shown))
    figure, (axis,) = plot.panels(1, 1, figsize=size)
    rows = list(shown.itertuples())
    names = [f"{row.attack.replace('_', ' ')} ({row.family})" for row in rows]
    plot.categories(axis, names, fontsize="x-small")
    bars = [((row.low, row.high, 0.9),) for row in rows]
    marks = [
        plot.Mark(place, row.lift, bars[place], colour=plot.PALETTE[0], line={"markersize": 3})
        for place, row in enumerate(rows)
    ]
    plot.draw_marks(axis, marks)
    axis.set(xlabel="lift of the mean score")
    neutral = table.neutral_mean.iloc[0]
    return figure, (
        f"The {len(shown)} most effective of {len(table)} attacks: mean score of wrong answers "
        "under attack less that of the same answers as they were "
        f"({'unknown' if pd.isna(neutral) else f'{neutral:.3f}'}). Bars: 95 % bootstrap interval "
        f"over n = {table.n.iloc[0]} answers, not corrected for the number of attacks; an "
        f"unreadable verdict counts as the invalid score. {origin(study, study.attacks)}"
    )


@REPORT.figure("judge_reliability")
def judge_reliability(study: ScoringStudy) -> plot.Drawn:
    """Share of right answers against the score, for every judge and both forms of the prompt."""
    bins = reliability_bins(study.quality)
    figure, axes = judge_panels(study)
    for axis, model in zip(axes, study.quality, strict=True):
        forms = bins[bins.model == model].groupby("form", sort=False)
        reliability(axis, [(str(form).replace("_", "-"), part, None) for form, part in forms])
    axes[0].set_ylabel("share of right answers")
    plot.one_legend(figure, axes)
    return figure, (
        "Reliability of the judges on held-out responses in ten equal bins of the expected score; "
        "on the dashed line a score is the chance that the answer is right; bins of fewer than "
        f"{MIN_BIN} responses are left out. {_quality_origin(study)}"
    )


@REPORT.figure("judge_histogram")
def judge_histogram(study: ScoringStudy, tables: Tables) -> plot.Drawn:
    """Distribution of the scores of right and of wrong answers."""
    table = tables["judge_histogram"].query("kind == 'expected' and form == 'few_shot'")
    figure, axes = judge_panels(study)
    for axis, model in zip(axes, study.quality, strict=True):
        part = table[(table.model == model) & (table["count"] > 0)]
        for right, (name, colour) in enumerate(plot.ANSWERS):
            bins = part[part.label == right]
            share, width = bins["count"] / bins["count"].sum(), bins.high - bins.low
            label = {"label": f"{name} answers"} if len(bins) else {}
            axis.bar(bins.low, share, width, align="edge", alpha=0.6, color=colour, **label)
        axis.set(xlabel="judge score", xlim=(0, 1))
        if part.empty:
            plot.no_data(axis)
    axes[0].set_ylabel("share of these answers")
    plot.one_legend(figure, axes)
    return figure, (
        "Distribution of the judges' valid scores (expected value of the digits, few-shot prompts) "
        "on held-out responses: shares of the right answers, and of the wrong ones. "
        f"{_quality_origin(study)}"
    )


@REPORT.figure("judge_groups")
def judge_groups(study: ScoringStudy, tables: Tables) -> plot.Drawn:
    """AUC by response length and by the problem's difficulty."""
    figure, axes = plot.panels(2, 2, sharey=True, width_ratios=[4, 3])
    shown = (
        ("judge_by_length", "length_bin", "response length (characters)"),
        ("judge_by_difficulty", "difficulty", "steps of the problem"),
    )
    for axis, (name, column, label) in zip(axes, shown, strict=True):
        table = tables[name].query("form == 'few_shot'")
        groups = {
            group: f"{str(group).removesuffix(' characters')}\nn = {count}"
            for group, count in zip(table[column], table["count"], strict=True)
        }
        if groups:
            sns.lineplot(
                x=table[column].map(groups), y=table.auc_expected.astype(float),
                hue=table.model.map(judge_name), marker="o", markersize=4, ax=axis,
            )  # fmt: skip
            axis.legend().remove()
        else:
            plot.no_data(axis)
        axis.axhline(0.5, color="#999999", linewidth=0.8, linestyle="--")
        axis.set(xlabel=label, xlim=(-0.4, len(groups) - 0.6), ylabel="AUC (expected score)")
    plot.one_legend(figure, axes)
    return figure, (
        "AUC of each judge's expected score (few-shot prompts) by response length, in quarters of "
        "the held-out responses, and by the problem's number of steps; dashed: chance. A point is "
        "missing where a group holds right or wrong answers only. "
        f"{_quality_origin(study)}"
    )


def judge_panels(study: ScoringStudy) -> tuple[Figure, list[Axes]]:
    """One panel per judge, side by side."""
    figure, axes = plot.panels(len(study.quality), len(study.quality), sharey=True)
    for axis, model in zip(axes, study.quality, strict=True):
        axis.set_title(judge_name(model))
    return figure, axes


def origin(study: ScoringStudy, report: dict[str, Any]) -> str:
    """Judge, number of responses and commit of one measurement."""
    count = report["corpus"]["responses"]
    return f"Judge {judge_name(report['judge'])}, n = {count} responses. Commit {commits(study)}."


def _quality_origin(study: ScoringStudy) -> str:
    reports = study.quality.values()
    counts = ", ".join(f"{judge_name(r['judge'])} n = {r['corpus']['responses']}" for r in reports)
    return f"Judges: {counts}. Commit {commits(study)}."

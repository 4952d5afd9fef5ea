"""Figures of the scoring study. Each function draws one and explains it in its caption."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from refblend.study.report.plotting.common import MIN_BIN, Drawn, no_data, one_legend
from refblend.study.report.plotting.style import BASELINE_COLOUR, COLUMN, PALETTE
from refblend.study.report.registry import Tables
from refblend.study.report.scoring.study import REPORT, ScoringStudy, commits, judge_name
from refblend.study.runs.model_quality import reliability_bins

ARM_NAMES = {
    "few_shot": "few-shot",
    "compact": "compact",
    "new_tokens_32": "32",
    "new_tokens_64": "64",
    "new_tokens_96": "96",
    "clip_on": "on",
    "clip_off": "off",
}
EXPERIMENTS = {"D1": "D1: prompt", "D2": "D2: new tokens", "D3": "D3: clipping"}
SHOWN_ATTACKS = 25
RIGHT_WRONG = {0: ("wrong answers", "#d55e00"), 1: ("right answers", "#0173b2")}


@REPORT.figure("robustness", preview=True)
def robustness(study: ScoringStudy, tables: Tables) -> Drawn:
    """Share of valid scores that are not zero, for each configuration and length."""
    arms, lengths = tables["robustness"], tables["robustness_by_length"]
    figure, axes = plt.subplots(
        1, 3, figsize=(2 * COLUMN, 0.8 * COLUMN), sharey=True, width_ratios=[2, 3, 2]
    )
    markers = dict(zip(dict.fromkeys(lengths["length"]), "o^s", strict=False))
    palette = PALETTE[: len(markers)]
    for axis, (experiment, title) in zip(axes, EXPERIMENTS.items(), strict=True):
        part = arms[arms.experiment == experiment]
        places = {arm: place for place, arm in enumerate(part.arm)}
        axis.bar(places.values(), part.nonzero_rate, color="#cccccc", width=0.6, label="all")
        for (length, marker), colour in zip(markers.items(), palette, strict=True):
            rows = lengths[(lengths.experiment == experiment) & (lengths.length == length)]
            shift = 0.15 * (list(markers).index(length) - (len(markers) - 1) / 2)
            axis.scatter(
                [places[arm] + shift for arm in rows.arm], rows.nonzero_rate, s=16, zorder=3,
                marker=marker, color=colour, label=length.replace("_", " "),
            )  # fmt: skip
        axis.set_xticks(list(places.values()), [ARM_NAMES.get(arm, arm) for arm in places])
        axis.set(title=title, ylim=(-0.03, 1.05))
        axis.grid(visible=False, axis="x")
    axes[0].set_ylabel("non-zero rate")
    one_legend(figure, axes)
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
def attacks(study: ScoringStudy, tables: Tables) -> Drawn:
    """Lift of the most effective attacks with its interval."""
    table = tables["attacks"]
    shown = table.head(SHOWN_ATTACKS)[::-1]
    figure, axis = plt.subplots(figsize=(1.7 * COLUMN, 0.3 + 0.14 * len(shown)))
    names = [f"{row.attack.replace('_', ' ')} ({row.family})" for row in shown.itertuples()]
    errors = np.abs(shown[["low", "high"]].to_numpy(float).T - shown.lift.to_numpy(float))
    axis.errorbar(
        shown.lift, names, xerr=np.nan_to_num(errors), fmt="o", markersize=3, linewidth=0.9
    )
    axis.axvline(0, color=BASELINE_COLOUR, linewidth=0.8, linestyle="--")
    axis.set(xlabel="lift of the mean score", ylim=(-0.7, len(shown) - 0.3))
    axis.tick_params(axis="y", labelsize="x-small")
    return figure, (
        f"The {len(shown)} most effective of {len(table)} attacks: mean score of wrong answers "
        "under attack less that of the same answers as they were "
        f"({_number(table.neutral_mean.iloc[0])}). Bars: 95 % bootstrap interval over "
        f"n = {table.n.iloc[0]} answers, not corrected for the number of attacks; an unreadable "
        f"verdict counts as the invalid score. {origin(study, study.attacks)}"
    )


@REPORT.figure("judge_reliability")
def judge_reliability(study: ScoringStudy) -> Drawn:
    """Share of right answers against the score, for every judge and both forms of the prompt."""
    bins = reliability_bins(study.quality).query("count >= @MIN_BIN")
    figure, axes = _panels(study)
    for axis, model in zip(axes, study.quality, strict=True):
        part = bins[bins.model == model]
        for form, line in part.groupby("form", sort=False):
            label = str(form).replace("_", "-")
            axis.plot(line.score, line.accuracy, marker="o", markersize=3, label=label)
        axis.plot([0, 1], [0, 1], color="#999999", linewidth=0.8, linestyle="--")
        axis.set(title=judge_name(model), xlabel="mean judge score", xlim=(0, 1), ylim=(0, 1))
        if part.empty:
            no_data(axis)
    axes[0].set_ylabel("share of right answers")
    one_legend(figure, axes)
    return figure, (
        "Reliability of the judges on held-out responses in ten equal bins of the expected score; "
        "on the dashed line a score is the chance that the answer is right; bins of fewer than "
        f"{MIN_BIN} responses are left out. {_quality_origin(study)}"
    )


@REPORT.figure("judge_histogram")
def judge_histogram(study: ScoringStudy, tables: Tables) -> Drawn:
    """Distribution of the scores of right and of wrong answers."""
    table = tables["judge_histogram"]
    table = table[(table.kind == "expected") & (table.form == "few_shot")]
    figure, axes = _panels(study)
    for axis, model in zip(axes, study.quality, strict=True):
        part = table[table.model == model]
        for label, (name, colour) in RIGHT_WRONG.items():
            bins = part[part.label == label]
            if bins["count"].sum():
                edges = [*bins.low, bins.high.iloc[-1]]
                share = bins["count"] / bins["count"].sum()
                axis.stairs(share, edges, fill=True, alpha=0.6, color=colour, label=name)
        axis.set(title=judge_name(model), xlabel="judge score", xlim=(0, 1))
        if not part["count"].sum():
            no_data(axis)
    axes[0].set_ylabel("share of these answers")
    one_legend(figure, axes)
    return figure, (
        "Distribution of the judges' valid scores (expected value of the digits, few-shot prompts) "
        "on held-out responses: shares of the right answers, and of the wrong ones. "
        f"{_quality_origin(study)}"
    )


@REPORT.figure("judge_groups")
def judge_groups(study: ScoringStudy, tables: Tables) -> Drawn:
    """AUC by response length and by the problem's difficulty."""
    figure, axes = plt.subplots(
        1, 2, figsize=(2 * COLUMN, 0.85 * COLUMN), sharey=True, width_ratios=[4, 3]
    )
    panels = (
        (axes[0], "judge_by_length", "length_bin", "response length (characters)"),
        (axes[1], "judge_by_difficulty", "difficulty", "steps of the problem"),
    )
    for axis, name, column, label in panels:
        table = tables[name][lambda frame: frame.form == "few_shot"]
        groups = dict(zip(table[column].astype(str), table["count"], strict=True))
        for model in study.quality:
            part = table[table.model == model].set_index(column)["auc_expected"].astype(float)
            values = part.rename(index=str).reindex(list(groups)).to_numpy(float)
            axis.plot(range(len(groups)), values, marker="o", markersize=3, label=judge_name(model))
        ticks = [
            f"{group.removesuffix(' characters')}\nn = {count}" for group, count in groups.items()
        ]
        axis.set_xticks(range(len(ticks)), ticks)
        axis.axhline(0.5, color="#999999", linewidth=0.8, linestyle="--")
        axis.set(xlabel=label, xlim=(-0.4, len(ticks) - 0.6))
        if not groups:
            no_data(axis)
    axes[0].set_ylabel("AUC (expected score)")
    one_legend(figure, axes)
    return figure, (
        "AUC of each judge's expected score (few-shot prompts) by response length, in quarters of "
        "the held-out responses, and by the problem's number of steps; dashed: chance. A point is "
        "missing where a group holds right or wrong answers only. "
        f"{_quality_origin(study)}"
    )


def origin(study: ScoringStudy, report: dict[str, Any]) -> str:
    """Judge, number of responses and commit of one measurement."""
    count = report["corpus"]["responses"]
    return f"Judge {judge_name(report['judge'])}, n = {count} responses. Commit {commits(study)}."


def _quality_origin(study: ScoringStudy) -> str:
    reports = study.quality.values()
    counts = ", ".join(f"{judge_name(r['judge'])} n = {r['corpus']['responses']}" for r in reports)
    return f"Judges: {counts}. Commit {commits(study)}."


def _panels(study: ScoringStudy) -> tuple[Any, list[Axes]]:
    """One panel per judge, side by side."""
    figure, axes = plt.subplots(
        1, len(study.quality), figsize=(2 * COLUMN, 0.8 * COLUMN), sharey=True, squeeze=False
    )
    return figure, list(axes.flat)


def _number(value: float) -> str:
    return "unknown" if pd.isna(value) else f"{value:.3f}"

"""M2's figures of the judge: how many scores can be used, their distribution and calibration."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from refblend.study.layout import JUDGES
from refblend.study.report.m2.labels import in_words
from refblend.study.report.m2.study import REPORT, M2Study, varies_judge
from refblend.study.report.m2.words import Tables
from refblend.study.report.plotting.common import (
    BINS,
    MIN_BIN,
    Drawn,
    bin_scores,
    no_data,
    one_legend,
)
from refblend.study.report.plotting.style import COLUMN, RIGHT_COLOUR, WRONG_COLOUR

NONZERO_COLOUR = "#0173b2"
VALID_COLOUR = "#de8f05"
RATES = {
    "valid_rate": ("valid", "D", VALID_COLOUR),
    "nonzero_rate": ("valid and not 0", "o", NONZERO_COLOUR),
}
SCORING_NAMES = {
    "few_shot": "D1 few-shot",
    "compact": "D1 compact",
    "new_tokens_32": "D2 32 tokens",
    "new_tokens_64": "D2 64 tokens",
    "new_tokens_96": "D2 96 tokens",
    "clip_on": "D3 clip on",
    "clip_off": "D3 clip off",
}


@REPORT.figure("score_coverage", section="D")
def score_coverage(study: M2Study, tables: Tables) -> Drawn:
    """Share of valid, and of valid and non-zero scores, for every configuration with a judge."""
    bases = {base for name in study.learning for base in study.baselines(name)}
    arms = [arm for arm in study.all_arms() if arm not in bases]
    places = {arm: study.resolved[arm].placement for arm in arms}
    panels = {
        "per token, per-token mean": [arm for arm in arms if places[arm] != "terminal"],
        "terminal": [arm for arm in arms if places[arm] == "terminal"],
    }
    scoring = tables["D_scoring"]
    longest = max(3, len(scoring), *[len(names) for names in panels.values()])
    figure, axes = plt.subplots(1, 3, figsize=(2 * COLUMN, 0.9 + 0.165 * longest), squeeze=False)
    shown: list[float] = []
    for axis, (title, names) in zip(axes.flat, panels.items(), strict=False):
        seeds = {rate: [_seeds(study, arm, rate) for arm in names] for rate in RATES}
        shown += _rates(axis, [in_words(arm) for arm in names], seeds)
        axis.set_title(title)
    names = [SCORING_NAMES.get(arm, in_words(arm)) for arm in scoring.arm]
    measured = {rate: [pd.Series([value]) for value in scoring[rate]] for rate in RATES}
    scored = _rates(axes[0, 2], names, measured)
    axes[0, 2].set_title("scoring path (D)")
    for axis, values in zip(axes.flat, (shown, shown, scored), strict=True):
        low = min((value for value in values if np.isfinite(value)), default=0.0)
        room = 0.08 * max(1 - low, 0.02)
        axis.set_xlim(low - room, 1 + room)
        axis.locator_params(axis="x", nbins=4)
    figure.supxlabel("share of judged responses", fontsize="medium")
    one_legend(figure, axes.flat)
    judged = int(scoring.responses.max()) if len(scoring) else 0
    return figure, (
        "Share of judged responses whose score is valid, and valid and not zero, against the "
        "configuration. Left and middle: the arms that train to the end and have a judge, by "
        "placement of its score; marks: mean over seeds of a run's mean over its steps; dots: "
        f"seeds. Right: the configurations of experiment D on {judged} fixed responses each. The "
        f"axes do not begin at 0. {study.origin(*study.learning, arms=arms)}"
    )


def _seeds(study: M2Study, arm: str, rate: str) -> pd.Series:
    values = study.values
    return values[(values.arm == arm) & (values.measure == rate)]["value"]


def _rates(axis: Axes, labels: Sequence[str], seeds: dict[str, list[pd.Series]]) -> list[float]:
    """Draw the rates of one panel; returns all values."""
    axis.set_yticks(range(len(labels)), labels, fontsize="x-small")
    axis.set_ylim(max(len(labels), 1) - 0.4, -0.6)
    shown: list[float] = []
    for rate, (label, marker, colour) in RATES.items():
        shift = -0.13 if rate == "valid_rate" else 0.13
        for place, values in enumerate(seeds[rate]):
            if values.notna().any():
                if len(values) > 1:
                    heights = np.full(len(values), place + shift)
                    axis.plot(values, heights, ".", color=colour, markersize=2, alpha=0.5)
                axis.plot(
                    values.mean(), place + shift, marker, color=colour, markersize=3, label=label
                )
                shown += list(values)
    if not shown:
        no_data(axis)
    return shown


@REPORT.figure("{experiment}_judges", each=varies_judge)
def judges_in_training(study: M2Study, experiment: str) -> Drawn:
    """Distribution of the scores by correctness, and their calibration, for every judge."""
    frame = study.of(experiment, study.responses)
    valid = frame[frame.judge_valid.fillna(False).astype(bool)]
    judges = judges_of(study, experiment)
    valid = valid.assign(judge=[study.resolved[arm].judge for arm in valid.arm])
    figure, axes = plt.subplots(
        2, max(1, len(judges)), figsize=(2 * COLUMN, 1.3 * COLUMN), sharex=True, sharey="row",
        squeeze=False,
    )  # fmt: skip
    for column, judge in enumerate(judges):
        part = valid[valid.judge == judge]
        top, bottom = axes[0, column], axes[1, column]
        top.set_title(f"{judge} judge, {len(part)} scores")
        _distribution(top, part)
        bottom.set_title(_auc(study, experiment, judge), fontsize="small")
        _reliability(bottom, part)
    axes[0, 0].set_ylabel("share of responses")
    axes[1, 0].set_ylabel("share of right answers")
    figure.align_ylabels(axes[:, 0])
    one_legend(figure, axes[0])
    invalid = f"{1 - len(valid) / len(frame):.1%}" if len(frame) else "none"
    return figure, (
        f"Experiment {experiment}: the judges' valid scores of the kept training responses, all "
        "seeds and all arms with that judge together. Above: their distribution, right and wrong "
        "answers apart, as shares of all. Below: share of right answers in ten equal bins of the "
        f"score (bins of fewer than {MIN_BIN} responses are left out; on the dashed line a score "
        "is the chance that the answer is right), and the AUC over all training steps. Without a "
        f"valid score: {invalid} of {len(frame)} kept responses. {study.origin(experiment)}"
    )


def _distribution(axis: Axes, part: pd.DataFrame) -> None:
    for right, colour in ((False, WRONG_COLOUR), (True, RIGHT_COLOUR)):
        scores = part[part.acc.ge(0.5).eq(right)].judge_score
        if len(scores):
            axis.hist(
                scores, list(BINS), weights=np.full(len(scores), 1 / len(part)), alpha=0.6,
                color=colour, label=f"{'right' if right else 'wrong'} answers",
            )  # fmt: skip
    if part.empty:
        no_data(axis, "no scores")


def _reliability(axis: Axes, part: pd.DataFrame) -> None:
    axis.plot([0, 1], [0, 1], color="#999999", linewidth=0.8, linestyle="--")
    axis.set(xlabel="judge score", xlim=(0, 1), ylim=(-0.02, 1.02))
    if part.empty:
        no_data(axis, "no scores")
        return
    bins = bin_scores(part.judge_score, part.acc).query("count >= @MIN_BIN")
    axis.plot(bins.score, bins.accuracy, marker="o", markersize=3.5, color="#333333")


def judges_of(study: M2Study, experiment: str) -> list[str]:
    """Judges of an experiment's arms: ours from weak to strong, then others as they come."""
    found = [study.resolved[arm].judge for arm in study.treated(experiment)]
    known = [judge for judge in JUDGES if judge in found]
    return list(dict.fromkeys([*known, *found]))


def _auc(study: M2Study, experiment: str, judge: str) -> str:
    """Mean AUC in training of a judge's arms."""
    values = study.wide(experiment, "judge_auc")
    arms = [arm for arm in study.treated(experiment) if study.resolved[arm].judge == judge]
    numbers = values[arms].to_numpy().ravel() if arms else np.array([])
    numbers = numbers[np.isfinite(numbers)]
    return f"AUC {numbers.mean():.3f}" if numbers.size else ""

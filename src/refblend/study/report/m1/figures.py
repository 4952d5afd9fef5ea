"""Figures of milestone M1. Each function draws one figure and explains it in its caption."""

import matplotlib.pyplot as plt
import numpy as np

from refblend.study.report.m1.study import REPORT, M1Study
from refblend.study.report.plotting.common import (
    BAND,
    BINS,
    MIN_BIN,
    Drawn,
    bin_scores,
    curves,
    no_data,
    one_legend,
    value_limits,
)
from refblend.study.report.plotting.panels import weight_and_entropy
from refblend.study.report.plotting.style import COLUMN, RIGHT_COLOUR, WRONG_COLOUR
from refblend.study.runs.model_quality import reliability_bins
from refblend.study.runs.series import series
from refblend.study.runs.stability import LOSS
from refblend.study.runs.validation import MEASURE_LABELS, validation_frame


@REPORT.figure("training_curves", preview=True)
def training_curves(study: M1Study) -> Drawn:
    """Reward, entropy, loss and gradient norm over the steps."""
    panels = (
        ("rule reward", ("critic/score/mean", "critic/rewards/mean")),
        ("avg. entropy (nats)", ("actor/ref_quality/avg_entropy", "actor/entropy")),
        ("policy loss", LOSS),
        ("gradient norm", ("actor/grad_norm",)),
    )
    figure, axes = plt.subplots(2, 2, figsize=(2 * COLUMN, 1.3 * COLUMN), sharex=True)
    for axis, (label, names) in zip(axes.flat, panels, strict=True):
        curves(axis, series(study.metrics, *names), study.colours, label)
    one_legend(figure, axes.flat)
    return figure, f"Training curves of every arm. {BAND}"


@REPORT.figure("val_accuracy")
def val_accuracy(study: M1Study) -> Drawn:
    """Validation accuracy over the steps: greedy, mean over samples, and the sanity set."""
    frame = validation_frame(study.metrics)
    shown = [name for name in ("acc", "sampled", "sanity") if name in set(frame.measure)] or ["acc"]
    figure, axes = plt.subplots(
        1, len(shown), figsize=(2 * COLUMN, 0.75 * COLUMN), sharey=True, squeeze=False
    )
    for axis, measure in zip(axes.flat, shown, strict=True):
        part = frame[frame.measure == measure]
        curves(axis, part, study.colours, MEASURE_LABELS[measure])
    axes[0, 0].set_ylim(value_limits(frame[frame.measure.isin(shown)]["value"]))  # of all panels
    one_legend(figure, axes.flat)
    return figure, (
        "Accuracy during training; step 0 is the warm-started actor before any update. "
        "Panels: greedy answers to the validation problems, sampled answers to them, and greedy "
        f"answers to the sanity set, as far as they were measured. {BAND}"
    )


@REPORT.figure("weight_entropy")
def weight_entropy(study: M1Study) -> Drawn:
    """Blending weight and entropy over time, and against one another."""
    return weight_and_entropy(study.metrics, study.colours)


@REPORT.figure("score_distribution")
def score_distribution(study: M1Study) -> Drawn:
    """Judge scores at the first and the last dumped step, by whether the answer is right."""
    frame = study.responses
    steps = sorted(frame.step.unique())
    shown = [steps[0], steps[-1]] if len(steps) > 1 else steps or [None]
    figure, axes = plt.subplots(
        1, len(shown), figsize=(2 * COLUMN, 0.75 * COLUMN), sharey=True, squeeze=False
    )
    for axis, step in zip(axes.flat, shown, strict=True):
        part = frame[(frame.step == step) & frame.judge_valid.fillna(False).astype(bool)]
        for right, colour in ((False, WRONG_COLOUR), (True, RIGHT_COLOUR)):
            scores = part[part.acc.ge(0.5).eq(right)].judge_score
            if len(scores):
                label = f"{'right' if right else 'wrong'} answers"
                weights = np.full(len(scores), 1 / len(part))
                axis.hist(scores, BINS, weights=weights, alpha=0.6, color=colour, label=label)
        axis.set(xlabel="judge score", xlim=(0, 1))
        if part.empty:
            no_data(axis)
        else:
            axis.set_title(f"step {step}, {len(part)} responses")
    axes.flat[0].set_ylabel("share of responses")
    one_legend(figure, axes.flat)
    invalid = 1 - frame.judge_valid.astype(float).mean() if len(frame) else np.nan
    return figure, (
        "Distribution of the judge's valid scores over training responses at the first and the "
        "last step whose responses were kept, right and wrong answers separately, all seeds of the "
        f"arms with a judge together. {len(frame)} responses were kept in all"
        + (f", {invalid:.1%} of them without a valid score." if len(frame) else ".")
    )


@REPORT.figure("judge_rates")
def judge_rates(study: M1Study) -> Drawn:
    """Share of valid and of non-zero scores, and how often the fallbacks were needed."""
    panels = ("valid_rate", "nonzero_rate", "fallback_rate", "compact_rate")
    figure, axes = plt.subplots(2, 2, figsize=(2 * COLUMN, 1.3 * COLUMN), sharex=True, sharey=True)
    for axis, name in zip(axes.flat, panels, strict=True):
        part = series(study.metrics, f"actor/ref_quality/{name}")
        curves(axis, part, study.colours, name.replace("_", " "))
        axis.set_ylim(-0.02, 1.02)
    one_legend(figure, axes.flat)
    return figure, (
        "The judge's scores by training step, as shares of the responses: valid; valid and not "
        "zero; read by a fallback because the text parser could not; and asked for with the "
        f"compact template. {BAND}"
    )


@REPORT.figure("judge_reliability")
def judge_reliability(study: M1Study) -> Drawn:
    """Calibration: share of right answers against the judge's score."""
    held_out = reliability_bins(study.quality).query("count >= @MIN_BIN and form == 'few_shot'")
    frame = study.responses
    frame = frame[frame.judge_valid.astype(bool)]
    panels = 1 if held_out.empty else 2
    figure, axes = plt.subplots(
        1, panels, figsize=(panels * COLUMN, 0.9 * COLUMN), sharey=True, squeeze=False
    )
    trained = axes[0, -1]
    if not held_out.empty:
        axes[0, 0].set_title("held-out pairs")
        for model, part in held_out.groupby("model", sort=False):
            axes[0, 0].plot(part.score, part.accuracy, marker="o", markersize=3, label=model)
    for arm, part in frame.groupby("arm"):
        bins = bin_scores(part.judge_score, part.acc).query("count >= @MIN_BIN")
        trained.plot(
            bins.score, bins.accuracy, marker="o", markersize=3, color=study.colours[arm], label=arm
        )
    trained.set_title("training responses")
    if frame.empty:
        no_data(trained)
    for axis in axes.flat:
        axis.plot([0, 1], [0, 1], color="#999999", linewidth=0.8, linestyle="--")
        axis.set(xlabel="mean judge score", xlim=(0, 1), ylim=(0, 1))
        if axis.get_legend_handles_labels()[0]:
            axis.legend(fontsize="x-small", loc="upper left")
    axes[0, 0].set_ylabel("share of right answers")
    held = "Left: the embedded judges on held-out pairs, few-shot prompts. Right: the"
    shown = "The" if held_out.empty else held
    return figure, (
        "Reliability of the judge in ten equal bins of its score; on the dashed line the score "
        "equals the probability that the answer is right; bins of fewer than "
        f"{MIN_BIN} responses are left out. {shown} judge of each arm on {len(frame)} kept "
        "training responses."
    )


@REPORT.figure("response_length")
def response_length(study: M1Study) -> Drawn:
    """Length of the responses, and the correlation of reward and length."""
    figure, axes = plt.subplots(1, 2, figsize=(2 * COLUMN, 0.75 * COLUMN))
    length = series(study.metrics, "response_length/mean")
    curves(axes[0], length, study.colours, "mean response length (tokens)")
    correlation = series(study.metrics, "actor/ref_quality/reward_length_corr")
    curves(axes[1], correlation, study.colours, "corr(reward, length)")
    one_legend(figure, axes)
    return figure, (
        "Mean response length, and the correlation of a response's reward with its length: a "
        f"score on every token can pay for length alone. {BAND}"
    )

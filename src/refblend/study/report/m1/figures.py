"""Figures of milestone M1. Each function draws one figure and says in its caption what it shows."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from refblend.files import write_json
from refblend.study.report.plotting.common import (
    BAND,
    BINS,
    MIN_BIN,
    Drawn,
    bin_scores,
    commit_text,
    curves,
    no_data,
    one_legend,
    origin,
)
from refblend.study.report.plotting.style import (
    COLUMN,
    RIGHT_COLOUR,
    WRONG_COLOUR,
    apply_style,
    arm_colours,
    save_figure,
)
from refblend.study.runs.collect import Collected
from refblend.study.runs.measures import LOSS, MEASURE_LABELS, series, validation_frame
from refblend.study.runs.model_quality import reliability_bins

__all__ = [
    "BAND",
    "FIGURES",
    "MIN_BIN",
    "Drawn",
    "FigureData",
    "bin_scores",
    "commit_text",
    "curves",
    "no_data",
    "one_legend",
    "origin",
    "weight_entropy",
    "write_figures",
]


@dataclass(frozen=True)
class FigureData:
    """What the figures are drawn from."""

    collected: Collected
    baseline: str
    quality: dict[str, Any]

    @property
    def metrics(self) -> pd.DataFrame:
        """Metrics of finished runs."""
        return self.collected.counted_metrics

    @property
    def responses(self) -> pd.DataFrame:
        """Judged responses of finished runs."""
        finished = self.collected.finished[["arm", "seed"]]
        frame = self.collected.responses.merge(finished, on=["arm", "seed"])
        return frame[frame.judge_score.notna()]

    @property
    def colours(self) -> dict[str, Any]:
        """Arm → colour."""
        return arm_colours(self.collected.runs.arm, self.baseline)


def training_curves(data: FigureData) -> Drawn:
    """Reward, entropy, loss and gradient norm over the steps."""
    panels = (
        ("rule reward", ("critic/score/mean", "critic/rewards/mean")),
        ("avg. entropy (nats)", ("actor/ref_quality/avg_entropy", "actor/entropy")),
        ("policy loss", LOSS),
        ("gradient norm", ("actor/grad_norm",)),
    )
    figure, axes = plt.subplots(2, 2, figsize=(2 * COLUMN, 1.3 * COLUMN), sharex=True)
    for axis, (label, names) in zip(axes.flat, panels, strict=True):
        curves(axis, series(data.metrics, *names), data.colours, label)
    one_legend(figure, axes.flat)
    return figure, f"Training curves of every arm. {BAND}"


def val_accuracy(data: FigureData) -> Drawn:
    """Validation accuracy over the steps: greedy, mean over samples, and the sanity set."""
    frame = validation_frame(data.metrics)
    shown = [name for name in ("acc", "sampled", "sanity") if name in set(frame.measure)] or ["acc"]
    figure, axes = plt.subplots(
        1, len(shown), figsize=(2 * COLUMN, 0.75 * COLUMN), sharey=True, squeeze=False
    )
    for axis, measure in zip(axes.flat, shown, strict=True):
        part = frame[frame.measure == measure]
        curves(axis, part, data.colours, MEASURE_LABELS[measure])
    one_legend(figure, axes.flat)
    return figure, (
        "Accuracy during training; step 0 is the warm-started actor before any update. "
        "Panels: greedy answers to the validation problems, sampled answers to them, and greedy "
        f"answers to the sanity set, as far as they were measured. {BAND}"
    )


def weight_entropy(data: FigureData) -> Drawn:
    """Blending weight and entropy over time, and against one another."""
    figure, axes = plt.subplots(1, 3, figsize=(2 * COLUMN, 0.75 * COLUMN))
    blended = set(series(data.metrics, "actor/ref_quality/weight").arm)
    metrics = data.metrics[data.metrics.arm.isin(blended)]
    weight = series(metrics, "actor/ref_quality/weight")
    entropy = series(metrics, "actor/ref_quality/avg_entropy")
    curves(axes[0], entropy, data.colours, "avg. entropy (nats)")
    curves(axes[1], weight, data.colours, "weight w")
    keys = ["arm", "seed", "step"]
    both = weight.merge(entropy, on=keys, suffixes=("_w", "_h"))
    for arm, part in both.groupby("arm"):
        axes[2].scatter(
            part.value_h, part.value_w, s=6, alpha=0.6, color=data.colours[arm], label=arm
        )
    axes[2].set(xlabel="avg. entropy (nats)", ylabel="weight w")
    if both.empty:
        no_data(axes[2])
    one_legend(figure, axes[:2])
    return figure, (
        "Blending weight and batch-average entropy of the arms with a judge: over the training "
        f"steps, and weight against entropy with one point a step and run. {BAND}"
    )


def score_distribution(data: FigureData) -> Drawn:
    """Judge scores at the first and the last dumped step, by whether the answer is right."""
    frame = data.responses
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
        "last step whose responses were kept, all seeds of the arms with a judge together, apart "
        f"for right and wrong answers. {len(frame)} responses were kept in all"
        + (f", {invalid:.1%} of them without a valid score." if len(frame) else ".")
    )


def judge_rates(data: FigureData) -> Drawn:
    """Share of valid and of non-zero scores, and how often the fallbacks were needed."""
    panels = ("valid_rate", "nonzero_rate", "fallback_rate", "compact_rate")
    figure, axes = plt.subplots(2, 2, figsize=(2 * COLUMN, 1.3 * COLUMN), sharex=True, sharey=True)
    for axis, name in zip(axes.flat, panels, strict=True):
        part = series(data.metrics, f"actor/ref_quality/{name}")
        curves(axis, part, data.colours, name.replace("_", " "))
        axis.set_ylim(-0.02, 1.02)
    one_legend(figure, axes.flat)
    return figure, (
        "Share of responses whose judge score is valid, is valid and not zero, could not be read "
        "by the text parser (fallback), and was asked for with the compact template, by training "
        f"step. {BAND}"
    )


def judge_reliability(data: FigureData) -> Drawn:
    """Calibration: share of right answers against the judge's score."""
    held_out = reliability_bins(data.quality).query("count >= @MIN_BIN and form == 'few_shot'")
    frame = data.responses
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
            bins.score, bins.accuracy, marker="o", markersize=3, color=data.colours[arm], label=arm
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
    shown = "" if held_out.empty else held
    return figure, (
        "Reliability of the judge in ten equal bins of its score; on the dashed line a score is "
        f"the chance that the answer is right; bins of fewer than {MIN_BIN} responses are left "
        f"out. {shown or 'The'} judge of each arm on "
        f"{len(frame)} kept training responses."
    )


def response_length(data: FigureData) -> Drawn:
    """Length of the responses, and the correlation of reward and length."""
    figure, axes = plt.subplots(1, 2, figsize=(2 * COLUMN, 0.75 * COLUMN))
    length = series(data.metrics, "response_length/mean")
    curves(axes[0], length, data.colours, "mean response length (tokens)")
    correlation = series(data.metrics, "actor/ref_quality/reward_length_corr")
    curves(axes[1], correlation, data.colours, "corr(reward, length)")
    one_legend(figure, axes)
    return figure, (
        "Mean response length, and the correlation of a response's reward with its length: a "
        f"score on every token can pay for length alone. {BAND}"
    )


FIGURES: dict[str, Callable[[FigureData], Drawn]] = {
    draw.__name__: draw
    for draw in (
        training_curves,
        val_accuracy,
        weight_entropy,
        score_distribution,
        judge_rates,
        judge_reliability,
        response_length,
    )
}


def write_figures(data: FigureData, out: str | Path) -> dict[str, str]:
    """Draw all figures below ``out`` and write ``captions.json``; returns the captions."""
    apply_style()
    captions = {}
    for name, draw in FIGURES.items():
        figure, shows = draw(data)
        save_figure(figure, Path(out) / name)
        captions[name] = f"{shows} {origin(data.collected)}"
    write_json(Path(out) / "captions.json", captions)
    return captions

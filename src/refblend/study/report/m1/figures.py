"""Figures of milestone M1. Each function draws one figure and explains it in its caption."""

from refblend.study.report.m1.study import REPORT, M1Study
from refblend.study.report.plotting import common as plot
from refblend.study.report.plotting.panels import (
    BAND,
    ENTROPY,
    ENTROPY_LABEL,
    MIN_BIN,
    bin_scores,
    curve_panels,
    reliability,
    weight_and_entropy,
)
from refblend.study.report.plotting.panels import score_distribution as distribution
from refblend.study.runs.curves import LOSS, MEASURE_LABELS, series, validation_frame
from refblend.study.runs.model_quality import reliability_bins


@REPORT.figure("training_curves", preview=True)
def training_curves(study: M1Study) -> plot.Drawn:
    """Reward, entropy, loss and gradient norm over the steps."""
    names = {
        "rule reward": ("critic/score/mean", "critic/rewards/mean"),
        ENTROPY_LABEL: ENTROPY,
        "policy loss": LOSS,
        "gradient norm": ("actor/grad_norm",),
    }
    frames = {label: series(study.metrics, *metrics) for label, metrics in names.items()}
    figure, _ = curve_panels(frames, study.colours)
    return figure, f"Training curves of every arm. {BAND}"


@REPORT.figure("val_accuracy")
def val_accuracy(study: M1Study) -> plot.Drawn:
    """Validation accuracy over the steps: greedy, mean over samples, and the sanity set."""
    frame = validation_frame(study.metrics)
    shown = [name for name in ("acc", "sampled", "sanity") if name in set(frame.measure)] or ["acc"]
    frames = {MEASURE_LABELS[name]: frame[frame.measure == name] for name in shown}
    figure, _ = curve_panels(frames, study.colours, across=len(frames), sharey=True)
    return figure, (
        "Accuracy during training; step 0 is the warm-started actor before any update. "
        "Panels: greedy answers to the validation problems, sampled answers to them, and greedy "
        f"answers to the sanity set, as far as they were measured. {BAND}"
    )


REPORT.figure("weight_entropy")(weight_and_entropy)


@REPORT.figure("score_distribution")
def score_distribution(study: M1Study) -> plot.Drawn:
    """Judge scores at the first and the last dumped step, by whether the answer is right."""
    frame = study.responses
    steps = sorted(frame.step.unique())
    shown = sorted({steps[0], steps[-1]}) if steps else [0]
    figure, axes = plot.panels(len(shown), 2, sharey=True)
    for axis, step in zip(axes, shown, strict=True):
        part = frame[(frame.step == step) & frame.judge_valid.fillna(False).astype(bool)]
        distribution(axis, part)
        axis.set_title(f"step {step}, {len(part)} responses")
    axes[0].set_ylabel("share of responses")
    plot.one_legend(figure, axes)
    invalid = 1 - frame.judge_valid.astype(float).mean()
    return figure, (
        "Distribution of the judge's valid scores over training responses at the first and the "
        "last step whose responses were kept, right and wrong answers separately, all seeds of the "
        f"arms with a judge together. {len(frame)} responses were kept in all"
        + (f", {invalid:.1%} of them without a valid score." if len(frame) else ".")
    )


@REPORT.figure("judge_rates")
def judge_rates(study: M1Study) -> plot.Drawn:
    """Share of valid and of non-zero scores, and how often the fallbacks were needed."""
    frames = {
        name.replace("_", " "): series(study.metrics, f"actor/ref_quality/{name}")
        for name in ("valid_rate", "nonzero_rate", "fallback_rate", "compact_rate")
    }
    figure, axes = curve_panels(frames, study.colours)
    for axis in axes:
        axis.set_ylim(-0.02, 1.02)
    return figure, (
        "The judge's scores by training step, as shares of the responses: valid; valid and not "
        "zero; read by a fallback because the text parser could not; and asked for with the "
        f"compact template. {BAND}"
    )


@REPORT.figure("judge_reliability")
def judge_reliability(study: M1Study) -> plot.Drawn:
    """Calibration: share of right answers against the judge's score."""
    held_out = reliability_bins(study.quality).query("form == 'few_shot'")
    frame = study.responses
    frame = frame[frame.judge_valid.astype(bool)]
    lines = {
        "training responses": [
            (str(arm), bin_scores(part.judge_score, part.acc), study.colours[arm])
            for arm, part in frame.groupby("arm")
        ]
    }
    if len(held_out):
        judges = held_out.groupby("model", sort=False)
        lines = {"held-out pairs": [(str(name), part, None) for name, part in judges]} | lines
    figure, axes = plot.panels(
        len(lines), 2, figsize=(len(lines) * plot.COLUMN, 0.9 * plot.COLUMN), sharey=True
    )
    for axis, (title, part) in zip(axes, lines.items(), strict=True):
        reliability(axis, part)
        axis.set_title(title)
        if part:
            axis.legend(fontsize="x-small", loc="upper left")
    axes[0].set_ylabel("share of right answers")
    held = "Left: the embedded judges on held-out pairs, few-shot prompts. Right: the"
    return figure, (
        "Reliability of the judge in ten equal bins of its score; on the dashed line the score "
        "equals the probability that the answer is right; bins of fewer than "
        f"{MIN_BIN} responses are left out. {held if len(held_out) else 'The'} judge of each arm "
        f"on {len(frame)} kept training responses."
    )


@REPORT.figure("response_length")
def response_length(study: M1Study) -> plot.Drawn:
    """Length of the responses, and the correlation of reward and length."""
    names = {
        "mean response length (tokens)": "response_length/mean",
        "corr(reward, length)": "actor/ref_quality/reward_length_corr",
    }
    frames = {label: series(study.metrics, name) for label, name in names.items()}
    figure, _ = curve_panels(frames, study.colours)
    return figure, (
        "Mean response length, and the correlation of a response's reward with its length: a "
        f"score on every token can pay for length alone. {BAND}"
    )

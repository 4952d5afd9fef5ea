"""Experiment D: one fixed corpus scored under each form of prompt, length and clipping.

D1 few-shot or compact template, D2 ``max_new_tokens`` 32, 64, 96, D3 hard clipping on or off.
Each arm changes one thing of the base options.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from refblend.ppo.metrics import expected_calibration_error, roc_auc
from refblend.scoring.generative import GenerativeJudge, JudgeOptions
from refblend.scoring.measure.calibration import score_corpus
from refblend.scoring.measure.corpus import check_corpus
from refblend.scoring.templates import PromptForm

NEW_TOKENS = (32, 64, 96)
D1_FORMS: dict[str, PromptForm] = {"few_shot": "full", "compact": "compact"}
WARM_UP = 32
"""Responses scored before the first arm, to warm the engine up."""


@dataclass(frozen=True)
class RobustnessArm:
    """One configuration of experiment D.

    Attributes:
        experiment: ``D1``, ``D2`` or ``D3``.
        name: unique within the experiment, e.g. ``compact``.
        options: how the judge is asked.
    """

    experiment: str
    name: str
    options: JudgeOptions


def robustness_arms(base: JudgeOptions) -> list[RobustnessArm]:
    """All arms; the base itself is one arm of each experiment when it has the usual options.

    Raises:
        ScoringError: a number of new tokens leaves no room for a prompt.
    """
    d1 = [RobustnessArm("D1", name, replace(base, form=form)) for name, form in D1_FORMS.items()]
    d2 = [
        RobustnessArm(
            "D2", f"new_tokens_{n}", replace(base, limits=replace(base.limits, max_new_tokens=n))
        )
        for n in NEW_TOKENS
    ]
    d3 = [
        RobustnessArm("D3", name, replace(base, hard_clip=clip))
        for name, clip in (("clip_on", True), ("clip_off", False))
    ]
    return [*d1, *d2, *d3]


def run_robustness(
    judge: GenerativeJudge,
    corpus: pd.DataFrame,
    arms: Sequence[RobustnessArm] | None = None,
    batch_size: int = 256,
    progress: Callable[[RobustnessArm, int], None] | None = None,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Score the corpus under every arm.

    Args:
        judge: its options are what the arms vary.
        corpus: ``question``, ``response``, ``label``; see :mod:`refblend.scoring.measure.corpus`.
        arms: :func:`robustness_arms` of the judge's options when None. Arms with equal options are
            scored once.
        batch_size: samples per engine call.
        progress: called with the arm and the number of its samples done.

    Returns:
        A table with a row per arm (see :func:`arm_row`), and the scored samples of all arms with
        ``experiment`` and ``arm`` columns.

    Raises:
        DataError: the corpus lacks a column.
        ScoringError: an arm's limits cannot hold the templates.
    """
    check_corpus(corpus)
    arms = robustness_arms(judge.options) if arms is None else arms
    rows: list[dict[str, Any]] = []
    samples: list[pd.DataFrame] = []
    known: dict[JudgeOptions, tuple[pd.DataFrame, float]] = {}
    # An engine's first call is slow for unrelated reasons: it must not count for an arm.
    score_corpus(judge, corpus.head(WARM_UP))
    for arm in arms:
        if arm.options not in known:
            asked = judge.with_options(arm.options)
            asked.begin_run()  # else an arm would be served the prompts of the one before it
            report = None if progress is None else (lambda n, arm=arm: progress(arm, n))
            start = time.perf_counter()
            scored = score_corpus(asked, corpus, batch_size, progress=report)
            known[arm.options] = scored, time.perf_counter() - start
        scored, seconds = known[arm.options]
        rows.append(arm_row(arm, scored, seconds))
        samples.append(scored.assign(experiment=arm.experiment, arm=arm.name))
    return pd.DataFrame(rows), pd.concat(samples, ignore_index=True)


def arm_row(arm: RobustnessArm, scored: pd.DataFrame, seconds: float) -> dict[str, Any]:
    """Experiment D's metrics of one arm.

    ``auc`` is over the valid scores and ``auc_all`` over all (an invalid score of 0.5 included,
    which is what training sees). Tokens are those that went through the engine and seconds are the
    arm's wall time, both divided by all responses.
    """
    valid = scored[scored["valid"]]
    submitted = scored[~scored["path"].isin(["overlength", "error"])]
    prompt_tokens, new_tokens = (
        int(submitted["prompt_tokens"].sum()),
        int(scored["new_tokens"].sum()),
    )
    n = len(scored)
    return {
        "experiment": arm.experiment,
        "arm": arm.name,
        "few_shot": arm.options.form == "full",
        "max_new_tokens": arm.options.limits.max_new_tokens,
        "hard_clip": arm.options.hard_clip,
        "responses": n,
        "overlength": int((scored["path"] == "overlength").sum()),
        "judge_error": int((scored["path"] == "error").sum()),
        "nonzero_rate": float((scored["valid"] & (scored["score"] != 0)).mean()),
        "valid_rate": float(scored["valid"].mean()),
        "fallback_rate": float((scored["path"] != "text").mean()),
        "token_path_rate": float((scored["path"] == "token").mean()),
        "compact_rate": float((scored["template"] == "compact").mean()),
        "clipped_rate": float(scored["clipped"].mean()),
        "auc": roc_auc(valid["score"].tolist(), valid["label"].tolist()),
        "auc_all": roc_auc(scored["score"].tolist(), scored["label"].tolist()),
        "ece": expected_calibration_error(valid["score"].tolist(), valid["label"].tolist()),
        "score_mean": float(scored["score"].mean()),
        "score_std": float(scored["score"].std(ddof=0)),
        "prompt_tokens_per_response": prompt_tokens / n,
        "new_tokens_per_response": new_tokens / n,
        "tokens_per_response": (prompt_tokens + new_tokens) / n,
        "seconds_per_response": seconds / n,
    }


def by_length(samples: pd.DataFrame) -> pd.DataFrame:
    """The metrics that length changes, a row per arm and ``length``; empty without that column.

    Args:
        samples: of :func:`run_robustness`.
    """
    if "length" not in samples:
        return pd.DataFrame()
    samples = samples.assign(
        nonzero=samples["valid"] & (samples["score"] != 0),
        over=samples["path"] == "overlength",
        compact=samples["template"] == "compact",
    )
    rows = []
    for (experiment, arm, length), part in samples.groupby(
        ["experiment", "arm", "length"], sort=False
    ):
        valid = part[part["valid"]]
        rows.append(
            {
                "experiment": experiment,
                "arm": arm,
                "length": length,
                "responses": len(part),
                "overlength": int(part["over"].sum()),
                "nonzero_rate": float(part["nonzero"].mean()),
                "valid_rate": float(part["valid"].mean()),
                "compact_rate": float(part["compact"].mean()),
                "clipped_rate": float(part["clipped"].mean()),
                "auc": roc_auc(valid["score"].tolist(), valid["label"].tolist()),
            }
        )
    return pd.DataFrame(rows)

"""Experiment D: one fixed corpus scored under each form of prompt, length and clipping.

D1 few-shot or compact template, D2 ``max_new_tokens`` 32, 64, 96, D3 hard clipping on or off.
Each arm changes one thing of the base options.
"""

import time
from collections.abc import Callable
from typing import Any

import pandas as pd

from refblend.config.scoring import ScoringConfig
from refblend.ppo.metrics import expected_calibration_error, roc_auc
from refblend.scoring.generative import GenerativeJudge
from refblend.scoring.measure.quality import FORMS, score_corpus

WARM_UP = 32
"""Responses scored before the first arm, to warm the engine up."""


ARMS: dict[tuple[str, str], dict[str, Any]] = {
    **{("D1", name): {"few_shot": shown} for name, shown in FORMS.items()},
    **{("D2", f"new_tokens_{n}"): {"max_new_tokens": n} for n in (32, 64, 96)},
    ("D3", "clip_on"): {"hard_clip": True},
    ("D3", "clip_off"): {"hard_clip": False},
}
"""Experiment and arm → the keys of ``scoring`` that it changes."""


def run_robustness(
    judge: GenerativeJudge,
    corpus: pd.DataFrame,
    progress: Callable[[int, str], None] = lambda done, arm: None,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Score the corpus under all :data:`ARMS`, those with equal settings once;
    ScoringError without room to answer.

    Returns a row per arm (see :func:`arm_row`), and the scored samples of all arms with
    ``experiment`` and ``arm`` columns. ``progress`` is told how many are done, and the arm.
    """
    rows: list[dict[str, Any]] = []
    samples: list[pd.DataFrame] = []
    known: dict[str, tuple[pd.DataFrame, float]] = {}
    # An engine's first call is slow for unrelated reasons: it must not count for an arm.
    score_corpus(judge, corpus.head(WARM_UP))
    judges = {arm: judge.asked(**changes) for arm, changes in ARMS.items()}
    for (experiment, arm), asked in judges.items():
        settings = asked.config.model_dump_json()
        if settings not in known:
            asked.begin_run()  # else an arm would be served the prompts of the one before it

            def told(n: int, done: int = len(rows) * len(corpus), arm: str = arm) -> None:
                progress(done + n, arm)

            start = time.perf_counter()
            scored = score_corpus(asked, corpus, progress=told)
            known[settings] = scored, time.perf_counter() - start
        scored, seconds = known[settings]
        names = {"experiment": experiment, "arm": arm}
        rows.append(arm_row(asked.config.scoring, scored, seconds) | names)
        samples.append(scored.assign(**names))
    return pd.DataFrame(rows), pd.concat(samples, ignore_index=True)


def _outcome(scored: pd.DataFrame) -> dict[str, Any]:
    """What became of the responses; ``auc`` is over the valid scores."""
    valid = scored[scored["valid"]]
    return {
        "responses": len(scored),
        "overlength": int((scored["path"] == "overlength").sum()),
        "nonzero_rate": float((scored["valid"] & (scored["score"] != 0)).mean()),
        "valid_rate": float(scored["valid"].mean()),
        "compact_rate": float((scored["template"] == "compact").mean()),
        "clipped_rate": float(scored["clipped"].mean()),
        "auc": roc_auc(valid["score"].tolist(), valid["label"].tolist()),
    }


def arm_row(scoring: ScoringConfig, scored: pd.DataFrame, seconds: float) -> dict[str, Any]:
    """Experiment D's metrics of one arm; tokens and seconds are divided by all its responses.

    ``auc_all`` is over all scores, an invalid one of 0.5 included, which is what training sees.
    """
    valid = scored[scored["valid"]]
    submitted = scored[~scored["path"].isin(["overlength", "error"])]
    prompt_tokens = int(submitted["prompt_tokens"].sum())
    new_tokens, n = int(scored["new_tokens"].sum()), len(scored)
    return _outcome(scored) | {
        "few_shot": scoring.few_shot,
        "max_new_tokens": scoring.max_new_tokens,
        "hard_clip": scoring.hard_clip,
        "judge_error": int((scored["path"] == "error").sum()),
        "fallback_rate": float((scored["path"] != "text").mean()),
        "token_path_rate": float((scored["path"] == "token").mean()),
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
    """What became of the samples by arm and ``length``; empty without that column."""
    if "length" not in samples:
        return pd.DataFrame()
    keys = ["experiment", "arm", "length"]
    return pd.DataFrame(
        [
            dict(zip(keys, names, strict=True)) | _outcome(part)
            for names, part in samples.groupby(keys, sort=False)
        ]
    )

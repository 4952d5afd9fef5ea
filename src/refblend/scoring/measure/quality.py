"""The quality of a judge on held-out responses, with few-shot and with compact prompts.

One generation per response gives both scores: the judge is asked in ``expected`` mode, and the
score as written is parsed again from its text.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from refblend.ppo.metrics import roc_auc
from refblend.scoring.generative import GenerativeJudge
from refblend.scoring.measure.calibration import (
    discrimination,
    judge_metrics,
    reliability_table,
    score_corpus,
    score_histogram,
    with_length_bins,
)
from refblend.scoring.measure.corpus import check_corpus
from refblend.scoring.parsing import parse_score
from refblend.scoring.prompts import encode_plain
from refblend.scoring.templates import PromptForm

FORMS: dict[str, PromptForm] = {"few_shot": "full", "compact": "compact"}
"""Forms of the prompt by their names in reports."""
TOKEN_LIMITS = (32, 64, 96)
"""``valid``: the share of answers whose box would be complete within that many tokens."""
KINDS = {"written": "score", "expected": "expected"}
"""Kinds of score and their columns in a scored corpus."""


def measure_quality(
    judge: GenerativeJudge,
    corpus: pd.DataFrame,
    batch_size: int = 256,
    progress: Callable[[int], None] | None = None,
) -> tuple[dict[str, dict[str, Any]], pd.DataFrame]:
    """Score the corpus in both forms; the judge's options but form and score mode are kept.

    ``progress`` is called with the number of responses done, both forms together.

    Returns:
        Form → :func:`quality_report`, and the scored responses with a column ``form``.

    Raises:
        DataError: the corpus lacks a column.
    """
    check_corpus(corpus)
    reports: dict[str, dict[str, Any]] = {}
    samples: list[pd.DataFrame] = []
    for name, form in FORMS.items():
        options = replace(judge.options, form=form, score_mode="expected")
        asked = judge.with_options(options)
        before = len(samples) * len(corpus)
        report = None if progress is None else (lambda n, before=before: progress(before + n))
        scored = score_corpus(asked, corpus, batch_size, progress=report)
        scored = with_written_scores(scored, judge.tokenizer, options.invalid_score)
        reports[name] = {"few_shot": form == "full"} | quality_report(
            scored, judge.tokenizer, options.limits.max_new_tokens
        )
        samples.append(scored.assign(form=name))
    return reports, pd.concat(samples, ignore_index=True)


def with_written_scores(
    scored: pd.DataFrame, tokenizer: Any, invalid_score: float = 0.5
) -> pd.DataFrame:
    """``score`` becomes the score as written, ``expected`` the expected value it was.

    The tokenizer encodes the texts that only the token-level parser reads.
    """
    written = []
    for raw, path in zip(scored["raw"], scored["path"], strict=True):
        if path in ("text", "token"):
            ids = encode_plain(tokenizer, raw) if path == "token" else None
            written.append(parse_score(raw, ids, tokenizer, invalid_score=invalid_score).score)
        else:
            written.append(invalid_score)
    return scored.assign(expected=scored["score"], score=written)


def quality_report(scored: pd.DataFrame, tokenizer: Any, max_new_tokens: int) -> dict[str, Any]:
    """All numbers on one judge and form of prompt, of samples with both scores.

    Returns:
        :func:`~refblend.scoring.measure.calibration.judge_metrics` of all responses; the same AUCs
        of worked ones (``auc_worked``, ``auc_expected_worked``) and their share; ``auc_within``
        (:func:`auc_within`) where questions have several responses; ``valid`` by token limit;
        ``distinct_scores``; ``mean_absolute_error`` to the targets, where there are some; and the
        frames ``by_length``, ``by_difficulty``, ``reliability`` and ``histogram``.
    """
    report: dict[str, Any] = judge_metrics(scored)
    if "worked" in scored:
        worked = judge_metrics(scored[scored["worked"]]) if scored["worked"].any() else {}
        report["worked"] = float(scored["worked"].mean())
        report["auc_worked"] = worked.get("auc")
        report["auc_expected_worked"] = worked.get("auc_expected")
    if scored["question"].duplicated().any():
        report["auc_within"] = auc_within(scored)
    if "target" in scored:
        error = np.abs(scored["score"] - scored["target"].to_numpy(float))
        report["mean_absolute_error"] = float(error.mean())
    return report | {
        "distinct_scores": int(scored.loc[scored["valid"], "score"].nunique()),
        "valid": valid_within(scored, tokenizer, max_new_tokens),
        "by_length": discrimination(with_length_bins(scored), "length_bin"),
        "by_difficulty": (
            discrimination(scored, "difficulty") if "difficulty" in scored else pd.DataFrame()
        ),
        "reliability": _both(reliability_table, scored),
        "histogram": _both(score_histogram, scored),
    }


def auc_within(scored: pd.DataFrame) -> float | None:
    """AUC of the expected scores among the responses to the same question, all pairs together.

    This is what a policy trained on groups of responses sees of a judge: that one problem is harder
    than another tells nothing there. None if no question has right and wrong responses.
    """
    found: list[tuple[float, int]] = []
    for _, group in scored[scored["valid"]].groupby("question"):
        auc = roc_auc(group["expected"].tolist(), group["label"].tolist())
        right = int((group["label"] >= 0.5).sum())
        if auc is not None:
            found.append((auc, right * (len(group) - right)))
    pairs = sum(count for _, count in found)
    return sum(auc * count for auc, count in found) / pairs if pairs else None


def valid_within(scored: pd.DataFrame, tokenizer: Any, max_new_tokens: int) -> dict[str, float]:
    """The share of answers with a complete box within each limit: ``{"32": 0.98, …}``.

    The judge's text is encoded again and cut. With the token-level parser a cut box can be valid
    too, so this is a lower bound of the valid rate; experiment D measures that.
    """
    limits = [n for n in TOKEN_LIMITS if n < max_new_tokens] + [max_new_tokens]
    texts = scored.loc[scored["path"] == "text", "raw"]
    encoded = [encode_plain(tokenizer, raw) for raw in texts]
    return {
        str(limit): sum(parse_score(tokenizer.decode(ids[:limit])).valid for ids in encoded)
        / len(scored)
        for limit in limits
    }


def _both(table: Callable[[pd.DataFrame, str], pd.DataFrame], scored: pd.DataFrame) -> pd.DataFrame:
    """The table of the written and of the expected score below one another."""
    parts = [table(scored, column).assign(kind=kind) for kind, column in KINDS.items()]
    return pd.concat(parts, ignore_index=True)

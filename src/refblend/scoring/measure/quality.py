"""The quality of a judge on held-out responses, with few-shot and with compact prompts.

A scored corpus has the corpus's columns (see :mod:`refblend.scoring.measure.corpus`) and
``RESULT_COLUMNS``, and maybe ``expected`` beside ``score``. :func:`measure_quality` gets both from
one generation per response: the score as written is parsed again from the judge's text.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import stats

from refblend.ppo.metrics import correlation, expected_calibration_error, grouped_auc, roc_auc
from refblend.scoring.generative import GenerativeJudge
from refblend.scoring.judge import Judge
from refblend.scoring.parsing import parse_score
from refblend.scoring.prompts import encode_plain
from refblend.scoring.result import JudgeResult
from refblend.seeding import derive_seed

_OF_RESULT = [f.name for f in fields(JudgeResult) if f.name != "prompt_tokens_unclipped"]
RESULT_COLUMNS = (*_OF_RESULT, "response_chars")
"""Columns that scoring adds to a corpus."""
LENGTH_BINS = 4
EXAMPLES = 8
"""Wrong answers of :func:`misjudged`."""
Numbers = npt.NDArray[np.float64]


def score_corpus(
    judge: Judge,
    corpus: pd.DataFrame,
    batch_size: int = 256,
    progress: Callable[[int], None] = lambda done: None,
) -> pd.DataFrame:
    """The corpus in its order with the judge's results; ``progress`` is told how many are done."""
    questions, responses = corpus["question"].tolist(), corpus["response"].tolist()
    results = []
    for start in range(0, len(questions), batch_size):
        rows = range(start, min(start + batch_size, len(questions)))
        seeds = [derive_seed(0, "judge", row) for row in rows]
        results += judge.score([questions[i] for i in rows], [responses[i] for i in rows], seeds)
        progress(len(results))
    columns = {name: [getattr(r, name) for r in results] for name in _OF_RESULT}
    return corpus.assign(**columns, response_chars=[len(text) for text in responses])


def reliability_table(scored: pd.DataFrame, by: str = "score", bins: int = 10) -> pd.DataFrame:
    """Reliability diagram of the column ``by``: a row per bin of [0, 1] that holds valid scores.

    ``score`` is their mean, ``accuracy`` the share of right answers. An edge opens the bin above.
    """
    valid = scored[scored["valid"]]
    places = np.clip(np.floor(valid[by].to_numpy(float) * bins), 0, bins - 1).astype(int)
    rows = [
        (place / bins, (place + 1) / bins, len(inside), inside[by].mean(), inside["label"].mean())
        for place, inside in valid.groupby(places)
    ]
    return pd.DataFrame(rows, columns=["low", "high", "count", "score", "accuracy"])


def score_histogram(scored: pd.DataFrame, by: str = "score", bins: int = 20) -> pd.DataFrame:
    """Counts of the valid values of ``by``: columns ``low``, ``high``, ``label``, ``count``."""
    edges = np.linspace(0.0, 1.0, bins + 1)
    parts = []
    for label in (0, 1):
        chosen = scored.loc[scored["valid"] & (scored["label"] == label), by]
        counts, _ = np.histogram(chosen.to_numpy(float), bins=edges)
        part = {"low": edges[:-1], "high": edges[1:], "label": label, "count": counts}
        parts.append(pd.DataFrame(part))
    return pd.concat(parts, ignore_index=True)


def judge_metrics(group: pd.DataFrame) -> dict[str, Any]:
    """Metrics of a scored group; AUC, ECE and correlation are over its valid scores."""
    valid = group[group["valid"]]
    labels = valid["label"].to_numpy(float)
    row: dict[str, Any] = {"count": len(group), "right": float(group["label"].mean())}
    for column, suffix in (("score", ""), ("expected", "_expected")):
        if column in group:
            scores = valid[column].to_numpy(float)
            row[f"auc{suffix}"] = roc_auc(scores, labels)
            row[f"ece{suffix}"] = expected_calibration_error(scores, labels)
    lengths = valid["response_chars"].to_numpy(float)
    return row | {
        "score_mean": float(group["score"].mean()),
        "score_std": float(group["score"].std(ddof=0)),
        "valid_rate": float(group["valid"].mean()),
        "nonzero_rate": float((group["valid"] & (group["score"] != 0)).mean()),
        "length_correlation": correlation(valid["score"].to_numpy(float), lengths),
        "new_tokens": float(group["new_tokens"].mean()),
    }


def discrimination(scored: pd.DataFrame, by: str) -> pd.DataFrame:
    """:func:`judge_metrics` of each group of the column ``by``, with its ``share`` of all."""
    return pd.DataFrame(
        [
            {by: key, "share": len(group) / len(scored), **judge_metrics(group)}
            for key, group in scored.groupby(by, sort=True, observed=True)
        ]
    )


def with_length_bins(scored: pd.DataFrame) -> pd.DataFrame:
    """``length_bin`` added: equal shares of the responses by length, e.g. ``12–40 characters``."""
    lengths = scored["response_chars"]
    edges = np.unique(np.quantile(lengths, np.linspace(0, 1, LENGTH_BINS + 1)).round())
    if len(edges) < 2:
        return scored.assign(length_bin=f"{int(edges[0])} characters")
    names = [f"{int(low)}–{int(high)} characters" for low, high in itertools.pairwise(edges)]
    edges[-1] += 1  # the longest response belongs to the last bin
    return scored.assign(length_bin=pd.cut(lengths, edges, right=False, labels=names))


FORMS = {"few_shot": True, "compact": False}
"""Forms of the prompt by their names in reports: whether the examples are shown."""
TOKEN_LIMITS = (32, 64, 96)
"""``valid``: the share of answers whose box would be complete within that many tokens."""
KINDS = {"written": "score", "expected": "expected"}
"""Kinds of score and their columns in a scored corpus."""


def measure_quality(
    judge: GenerativeJudge,
    corpus: pd.DataFrame,
    progress: Callable[[int], None] = lambda done: None,
) -> tuple[dict[str, dict[str, Any]], pd.DataFrame]:
    """Score the corpus in both forms; the judge's options but form and score mode are kept.

    Returns form → :func:`quality_report`, and the scored responses with a column ``form``.
    """
    reports: dict[str, dict[str, Any]] = {}
    samples: list[pd.DataFrame] = []
    for name, few_shot in FORMS.items():
        asked = judge.asked(few_shot=few_shot, score_mode="expected")

        def told(n: int, done: int = len(samples) * len(corpus)) -> None:
            progress(done + n)

        scored = score_corpus(asked, corpus, progress=told)
        scored = with_written_scores(scored, judge.tokenizer, judge.config.invalid_score)
        reports[name] = {"few_shot": few_shot} | quality_report(
            scored, judge.tokenizer, judge.config.scoring.max_new_tokens
        )
        samples.append(scored.assign(form=name))
    return reports, pd.concat(samples, ignore_index=True)


def with_written_scores(
    scored: pd.DataFrame, tokenizer: Any, invalid_score: float = 0.5
) -> pd.DataFrame:
    """``score`` becomes the score as written, ``expected`` the expected value it was."""
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

    :func:`judge_metrics` of all responses and AUCs of worked ones; :func:`auc_within` with its
    interval where questions have several responses; ``valid`` by token limit; the error to the
    targets, where there are some; and frames by length and difficulty, of reliability and counts.
    """
    report: dict[str, Any] = judge_metrics(scored)
    if "worked" in scored:
        worked = judge_metrics(scored[scored["worked"]]) if scored["worked"].any() else {}
        report["worked"] = float(scored["worked"].mean())
        report["auc_worked"] = worked.get("auc")
        report["auc_expected_worked"] = worked.get("auc_expected")
    if scored["question"].duplicated().any():
        report |= auc_within(scored)
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
        "misjudged": misjudged(scored),
    }


def misjudged(scored: pd.DataFrame) -> pd.DataFrame:
    """The wrong answers with the highest valid expected scores, one per question."""
    wrong = scored[scored["valid"] & (scored["label"] < 0.5)]
    highest = wrong.sort_values("expected", ascending=False, kind="stable")
    columns = ["question", "response", "raw", "expected"]
    return highest.drop_duplicates("question")[columns].head(EXAMPLES).reset_index(drop=True)


def auc_within(scored: pd.DataFrame) -> dict[str, float | None]:
    """AUC of the expected scores among the responses to the same question, all pairs together.

    This is what a policy trained on groups sees of a judge; None without a mixed question. The
    bounds are those of its 95 % bootstrap interval over questions.
    """
    valid = scored[scored["valid"]]
    columns = (valid[name].to_numpy() for name in ("expected", "label", "question"))
    aucs, pairs = grouped_auc(*columns)

    def pooled(aucs: Numbers, pairs: Numbers, axis: int = -1) -> Any:
        return (aucs * pairs).sum(axis) / pairs.sum(axis)

    rng = np.random.default_rng(0)
    low, high = interval((aucs, pairs), pooled, rng, paired=True, vectorized=True)
    auc = pooled(aucs, pairs) if len(aucs) else None
    return {"auc_within": auc, "auc_within_low": low, "auc_within_high": high}


def interval(
    values: Sequence[Numbers],
    statistic: Callable[..., Any],
    rng: np.random.Generator,
    **options: bool,
) -> tuple[float, float]:
    """95 % percentile bootstrap interval of a statistic; NaN for fewer than two values."""
    if len(values[0]) < 2:
        return float("nan"), float("nan")
    found = stats.bootstrap(
        values, statistic, n_resamples=2_000, method="percentile", rng=rng, **options
    ).confidence_interval
    return float(found.low), float(found.high)


def valid_within(scored: pd.DataFrame, tokenizer: Any, max_new_tokens: int) -> dict[str, float]:
    """The share of answers with a complete box within each limit: ``{"32": 0.98, …}``."""
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

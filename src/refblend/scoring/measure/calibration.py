"""How good a judge is on responses whose correctness is known: tidy tables, no plots.

A scored corpus has the corpus's columns (see :mod:`refblend.scoring.measure.corpus`) and
``RESULT_COLUMNS``; ``score`` is the judge's, and where ``expected`` stands beside it (the expected
value of the score's digits) its AUC and ECE are given too.
"""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from refblend.ppo.metrics import correlation, expected_calibration_error, roc_auc
from refblend.scoring.judge import Judge
from refblend.seeding import derive_seed

RESULT_COLUMNS = (
    "score",
    "valid",
    "path",
    "raw",
    "latency_s",
    "template",
    "clipped",
    "prompt_tokens",
    "new_tokens",
    "response_chars",
)
"""Columns that scoring adds to a corpus."""
LENGTH_BINS = 4


def score_corpus(
    judge: Judge,
    corpus: pd.DataFrame,
    batch_size: int = 256,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> pd.DataFrame:
    """The corpus with the judge's results as ``RESULT_COLUMNS``, in the corpus's order.

    ``seed`` is for judges that sample; ``progress`` is called with the number of samples done.
    """
    questions, responses = corpus["question"].tolist(), corpus["response"].tolist()
    results = []
    for start in range(0, len(questions), batch_size):
        rows = range(start, min(start + batch_size, len(questions)))
        seeds = [derive_seed(seed, "judge", row) for row in rows]
        results += judge.score([questions[i] for i in rows], [responses[i] for i in rows], seeds)
        if progress is not None:
            progress(len(results))
    columns = {name: [getattr(r, name) for r in results] for name in RESULT_COLUMNS[:-1]}
    return corpus.assign(**columns, response_chars=[len(text) for text in responses])


def reliability_table(scored: pd.DataFrame, by: str = "score", bins: int = 10) -> pd.DataFrame:
    """Reliability diagram of the column ``by``: a row per bin of [0, 1] that holds valid scores.

    Columns: ``low``, ``high`` (a score on an edge belongs to the bin above, 1 to the last),
    ``count``, ``score`` (mean), ``accuracy`` (share of right answers).
    """
    valid = scored[scored["valid"]]
    places = np.clip(np.floor(valid[by].to_numpy(float) * bins), 0, bins - 1).astype(int)
    rows = []
    for place in sorted(set(places.tolist())):
        inside = valid[places == place]
        rows.append(
            {
                "low": place / bins,
                "high": (place + 1) / bins,
                "count": len(inside),
                "score": float(inside[by].mean()),
                "accuracy": float(inside["label"].mean()),
            }
        )
    return pd.DataFrame(rows, columns=["low", "high", "count", "score", "accuracy"])


def score_histogram(scored: pd.DataFrame, by: str = "score", bins: int = 20) -> pd.DataFrame:
    """Counts of the valid values of ``by``: columns ``low``, ``high``, ``label``, ``count``."""
    edges = np.linspace(0.0, 1.0, bins + 1)
    rows = []
    for label in (0, 1):
        chosen = scored.loc[scored["valid"] & (scored["label"] == label), by]
        counts, _ = np.histogram(chosen.to_numpy(float), bins=edges)
        rows += [
            {"low": float(low), "high": float(high), "label": label, "count": int(count)}
            for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True)
        ]
    return pd.DataFrame(rows)


def judge_metrics(group: pd.DataFrame) -> dict[str, Any]:
    """Metrics of one group of a scored corpus.

    AUC, ECE and the correlation are over its valid scores, None where they are not defined;
    ``nonzero_rate`` is the share that is valid and not zero.
    """
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


def with_length_bins(scored: pd.DataFrame, bins: int = LENGTH_BINS) -> pd.DataFrame:
    """``length_bin`` added: equal shares of the responses by length, e.g. ``12–40 characters``."""
    lengths = scored["response_chars"]
    quantiles = np.unique(np.quantile(lengths, np.linspace(0, 1, bins + 1)).round())
    if len(quantiles) < 2:
        return scored.assign(length_bin=f"{int(quantiles[0])} characters")
    places = np.clip(np.searchsorted(quantiles, lengths, side="right") - 1, 0, len(quantiles) - 2)
    names = [f"{int(low)}–{int(high)} characters" for low, high in itertools.pairwise(quantiles)]
    ordered = pd.Categorical.from_codes(places.tolist(), categories=names, ordered=True)
    return scored.assign(length_bin=ordered)

"""How good a judge is on responses whose correctness is known: tidy tables, no figures.

A *corpus* is a data frame with the columns ``question``, ``response`` and ``label`` (1 right,
0 wrong), and optionally ``difficulty`` (steps of the problem) and others, which are kept.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from refblend.errors import DataError
from refblend.ppo.metrics import correlation, expected_calibration_error, roc_auc
from refblend.scoring.judge import Judge
from refblend.seeding import derive_seed

CORPUS_COLUMNS = ("question", "response", "label")
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


def check_corpus(corpus: pd.DataFrame) -> None:
    """Refuse a frame that is no corpus.

    Raises:
        DataError: a column is missing, a cell is empty, or a label is neither 0 nor 1.
    """
    missing = [c for c in CORPUS_COLUMNS if c not in corpus.columns]
    if missing or corpus.empty:
        raise DataError(
            f"corpus: {'no rows' if not missing else 'missing ' + ', '.join(missing)}",
            f"Give rows with the columns {', '.join(CORPUS_COLUMNS)}.",
        )
    for column in ("question", "response"):
        bad = [i for i, value in enumerate(corpus[column]) if not isinstance(value, str)]
        if bad:
            raise DataError(
                f"corpus: {column} of row {bad[0]} is not text", "Give a string in every row."
            )
    if not corpus["label"].isin([0, 1]).all():
        raise DataError("corpus: a label is neither 0 nor 1", "Label right answers 1, others 0.")


def score_corpus(
    judge: Judge,
    corpus: pd.DataFrame,
    batch_size: int = 256,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> pd.DataFrame:
    """The corpus with the judge's results beside it, in the corpus's order.

    Args:
        judge: scores.
        corpus: columns ``question`` and ``response`` at least.
        batch_size: samples an engine call.
        seed: for judges that sample.
        progress: called with the number of samples done after each call.

    Returns:
        A copy with ``RESULT_COLUMNS`` added.
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


def reliability_table(scored: pd.DataFrame, bins: int = 10) -> pd.DataFrame:
    """Reliability diagram: a row a bin of [0, 1] that holds valid scores.

    Columns: ``low``, ``high`` (a score on an edge belongs to the bin above, 1 to the last),
    ``count``, ``score`` (mean), ``accuracy`` (share of right answers).
    """
    valid = scored[scored["valid"]]
    places = np.clip(np.floor(valid["score"].to_numpy(float) * bins), 0, bins - 1).astype(int)
    rows = []
    for place in sorted(set(places.tolist())):
        inside = valid[places == place]
        rows.append(
            {
                "low": place / bins,
                "high": (place + 1) / bins,
                "count": len(inside),
                "score": float(inside["score"].mean()),
                "accuracy": float(inside["label"].mean()),
            }
        )
    return pd.DataFrame(rows, columns=["low", "high", "count", "score", "accuracy"])


def score_histogram(scored: pd.DataFrame, bins: int = 20) -> pd.DataFrame:
    """Counts of valid scores by label: columns ``low``, ``high``, ``label``, ``count``."""
    edges = np.linspace(0.0, 1.0, bins + 1)
    rows = []
    for label in (0, 1):
        chosen = scored.loc[scored["valid"] & (scored["label"] == label), "score"]
        counts, _ = np.histogram(chosen.to_numpy(float), bins=edges)
        rows += [
            {"low": float(low), "high": float(high), "label": label, "count": int(count)}
            for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True)
        ]
    return pd.DataFrame(rows)


def _figures(group: pd.DataFrame) -> dict[str, Any]:
    """Figures of one group; AUC, ECE and the correlation are over its valid scores."""
    valid = group[group["valid"]]
    scores, labels = valid["score"].to_numpy(float), valid["label"].to_numpy(float)
    return {
        "count": len(group),
        "right": float(group["label"].mean()),
        "auc": roc_auc(scores, labels),
        "ece": expected_calibration_error(scores, labels),
        "score_mean": float(group["score"].mean()),
        "score_std": float(group["score"].std(ddof=0)),
        "valid_rate": float(group["valid"].mean()),
        "nonzero_rate": float((group["valid"] & (group["score"] != 0)).mean()),
        "length_correlation": correlation(scores, valid["response_chars"].to_numpy(float)),
        "new_tokens": float(group["new_tokens"].mean()),
    }


def discrimination(scored: pd.DataFrame, by: str | None = None) -> pd.DataFrame:
    """Count, share right, AUC, ECE, score and validity figures; a row a group.

    Args:
        scored: from :func:`score_corpus`, with labels.
        by: a column to group by; None: one row for all. AUC is missing where a group has one
            class only.
    """
    if by is None:
        return pd.DataFrame([_figures(scored)])
    rows = [{by: key, **_figures(group)} for key, group in scored.groupby(by, sort=True)]
    return pd.DataFrame(rows)


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


@dataclass(frozen=True)
class CalibrationReport:
    """All tables on one judge; each a tidy frame.

    Attributes:
        overall: one row, see :func:`discrimination`.
        by_length: a row a length bin (``length_bin``).
        by_difficulty: a row a difficulty; empty when the corpus has none.
        reliability: see :func:`reliability_table`.
        histogram: see :func:`score_histogram`.
    """

    overall: pd.DataFrame
    by_length: pd.DataFrame
    by_difficulty: pd.DataFrame
    reliability: pd.DataFrame
    histogram: pd.DataFrame

    def tables(self) -> dict[str, pd.DataFrame]:
        """Name → frame."""
        return {
            "overall": self.overall,
            "by_length": self.by_length,
            "by_difficulty": self.by_difficulty,
            "reliability": self.reliability,
            "histogram": self.histogram,
        }


def calibration_report(scored: pd.DataFrame) -> CalibrationReport:
    """All tables for a scored corpus with labels.

    Raises:
        DataError: it has no labels.
    """
    check_corpus(scored)
    binned = with_length_bins(scored)
    by_length = discrimination(binned.astype({"length_bin": str}), "length_bin")
    order = {name: i for i, name in enumerate(pd.Categorical(binned["length_bin"]).categories)}
    by_length = by_length.sort_values("length_bin", key=lambda s: s.map(order)).reset_index(
        drop=True
    )
    return CalibrationReport(
        overall=discrimination(scored),
        by_length=by_length,
        by_difficulty=(
            discrimination(scored, "difficulty") if "difficulty" in scored else pd.DataFrame()
        ),
        reliability=reliability_table(scored),
        histogram=score_histogram(scored),
    )

"""Quality reports of the embedded models, as written by ``refblend models evaluate-…``."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from refblend.errors import StudyError
from refblend.files import read_json

ACTOR_COLUMNS = (
    "problems",
    "samples",
    "greedy",
    "sampled",
    "pass_at_k",
    "mixed_groups",
    "entropy",
    "length",
    "answered",
    "true_equations",
)
JUDGE_COLUMNS = (
    "few_shot",
    "pairs",
    "max_new_tokens",
    "auc",
    "auc_worked",
    "auc_expected",
    "auc_expected_worked",
    "ece",
    "ece_expected",
    "valid",
    "score_mean",
    "score_std",
    "distinct_scores",
    "tokens",
)


def read_quality(paths: Iterable[str | Path]) -> dict[str, Any]:
    """Model name (the file's stem) → its report.

    Raises:
        StudyError: a report is missing or is not JSON.
    """
    reports = {}
    for path in map(Path, paths):
        try:
            reports[path.stem] = read_json(path)
        except (OSError, ValueError) as error:
            raise StudyError(
                f"{path}: cannot be read ({error})", "Run `snakemake prepare`."
            ) from None
    return reports


def actor_table(reports: dict[str, Any]) -> pd.DataFrame:
    """One row an actor report: accuracies, pass@k, entropy in nats, lengths in tokens."""
    return _table(reports, "greedy", ACTOR_COLUMNS)


def judge_table(reports: dict[str, Any]) -> pd.DataFrame:
    """One row a judge and form of prompt: AUC, calibration, share of valid scores.

    ``valid at N`` is the share of outputs whose box is complete within N new tokens.
    """
    table = _table(reports, "auc", JUDGE_COLUMNS)
    limits = table.pop("valid").map(lambda shares: shares if isinstance(shares, dict) else {})
    for limit in sorted({n for shares in limits for n in shares}, key=int):
        table[f"valid at {limit}"] = [shares.get(limit) for shares in limits]
    return table


def reliability_bins(reports: dict[str, Any]) -> pd.DataFrame:
    """Held-out calibration with few-shot prompts: columns model, score, accuracy, count."""
    rows = []
    for model, report in reports.items():
        for record in _records(report, "reliability"):
            if record.get("few_shot", True):
                rows += [{"model": model} | dict(entry) for entry in record["reliability"]]
    frame = pd.DataFrame(rows)
    return frame.reindex(columns=["model", "score", "accuracy", "count"])


def _table(reports: dict[str, Any], key: str, columns: tuple[str, ...]) -> pd.DataFrame:
    rows = [
        {"model": model} | {name: record.get(name) for name in columns}
        for model, report in reports.items()
        for record in _records(report, key)
    ]
    return pd.DataFrame(rows, columns=["model", *columns])


def _records(value: Any, key: str) -> Iterator[dict[str, Any]]:
    """Objects with ``key`` anywhere in a report: it may hold one, or one a form of prompt."""
    if isinstance(value, dict):
        if key in value:
            yield value
            return
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _records(item, key)

"""Quality reports of the embedded models.

Written by ``refblend models evaluate-actor`` and ``refblend judge quality``.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from refblend.errors import StudyError
from refblend.files import read_record

JUDGE_COLUMNS = (
    "count", "right", "worked", "auc", "auc_worked", "auc_expected", "auc_expected_worked",
    "auc_within", "auc_within_low", "auc_within_high", "ece", "ece_expected", "valid_rate",
    "nonzero_rate", "valid", "score_mean", "score_std", "mean_absolute_error", "length_correlation",
    "distinct_scores", "new_tokens",
)  # fmt: skip


def read_quality(paths: Iterable[str | Path]) -> dict[str, Any]:
    """Model name (the file's stem) → its report; StudyError if one is missing or is not JSON."""
    files = map(Path, paths)
    return {file.stem: read_record(file, StudyError, "Run `snakemake prepare`.") for file in files}


def judge_table(reports: dict[str, Any]) -> pd.DataFrame:
    """One row per judge and form of prompt: AUC, calibration, share of valid scores.

    ``valid at N`` is the share of outputs whose box is complete within N new tokens.
    """
    rows = [
        {"model": model, "form": form} | {name: record.get(name) for name in JUDGE_COLUMNS}
        for model, form, record in judge_forms(reports)
    ]
    table = pd.DataFrame(rows, columns=["model", "form", *JUDGE_COLUMNS])
    limits = table.pop("valid").map(lambda shares: shares or {})
    for limit in sorted({n for shares in limits for n in shares}, key=int):
        table[f"valid at {limit}"] = [shares.get(limit) for shares in limits]
    return table


def judge_part(reports: dict[str, Any], part: str, columns: tuple[str, ...]) -> pd.DataFrame:
    """The rows of one part of all judges' reports, e.g. ``by_length``, with model and form."""
    rows = [
        {"model": model, "form": form} | row
        for model, form, record in judge_forms(reports)
        for row in record.get(part, [])
    ]
    return pd.DataFrame(rows).reindex(columns=["model", "form", *columns])


def judge_forms(reports: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Judge, form of prompt (few-shot first) and numbers of every judge report."""
    for model, report in reports.items():
        forms = report.get("forms", {})
        for form in sorted(forms, key=lambda name: name != "few_shot"):
            yield model, form, forms[form]

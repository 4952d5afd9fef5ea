"""The scoring study: what was measured of the judges, as tidy tables.

Read from the reports of ``refblend judge robustness``, ``attacks`` and ``quality``.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from refblend.errors import StudyError
from refblend.study.runs.model_quality import judge_part, judge_table, read_quality

ARM = ("experiment", "arm")
ROBUSTNESS_COLUMNS = (
    *ARM,
    "responses",
    "overlength",
    "nonzero_rate",
    "valid_rate",
    "fallback_rate",
    "auc",
    "auc_all",
    "ece",
    "tokens_per_response",
    "new_tokens_per_response",
    "seconds_per_response",
    "compact_rate",
    "clipped_rate",
    "token_path_rate",
    "judge_error",
    "score_mean",
    "score_std",
)
LENGTH_COLUMNS = (
    *ARM,
    "length",
    "responses",
    "overlength",
    "nonzero_rate",
    "valid_rate",
    "compact_rate",
    "clipped_rate",
    "auc",
)
ATTACK_COLUMNS = (
    "attack",
    "family",
    "n",
    "neutral_mean",
    "attacked_mean",
    "lift",
    "low",
    "high",
    "valid_rate",
    "clipped_rate",
    "overlength",
    "structure_changed",
)
GROUP_COLUMNS = (
    "count",
    "share",
    "right",
    "auc",
    "auc_expected",
    "ece",
    "ece_expected",
    "valid_rate",
    "score_mean",
    "new_tokens",
)


@dataclass(frozen=True)
class ScoringData:
    """The measurements: experiment D and the attacks on one judge, the quality of all."""

    robustness: dict[str, Any]
    attacks: dict[str, Any]
    quality: dict[str, Any]

    @property
    def reports(self) -> list[dict[str, Any]]:
        """All measurements."""
        return [self.robustness, self.attacks, *self.quality.values()]

    @cached_property
    def tables(self) -> dict[str, pd.DataFrame]:
        """:func:`scoring_tables`, made once."""
        return scoring_tables(self)


def read_scoring(
    robustness: str | Path, attacks: str | Path, quality: Iterable[str | Path]
) -> ScoringData:
    """Read the reports.

    Raises:
        StudyError: a file is missing, is not JSON, or is not the report of that command.
    """
    first, second = (next(iter(read_quality([p]).values())) for p in (robustness, attacks))
    data = ScoringData(first, second, read_quality(quality))
    wanted = [("arms", robustness, data.robustness), ("attacks", attacks, data.attacks)]
    for key, path, report in wanted:
        if key not in report or "provenance" not in report:
            raise StudyError(f"{path}: has no {key!r}", "Give a report of `refblend judge`.")
    return data


def scoring_tables(data: ScoringData) -> dict[str, pd.DataFrame]:
    """All tables by the names of :data:`refblend.study.layout.SCORING_TABLES`."""
    attacks = _frame(data.attacks["attacks"], ATTACK_COLUMNS)
    kinds = ("kind", "low", "high", "count")
    return {
        "robustness": _frame(data.robustness["arms"], ROBUSTNESS_COLUMNS),
        "robustness_by_length": _frame(data.robustness["by_length"], LENGTH_COLUMNS),
        "attacks": attacks.sort_values("lift", ascending=False, kind="stable", ignore_index=True),
        "attack_families": attack_families(attacks),
        "judge_quality": judge_table(data.quality),
        "judge_by_length": judge_part(data.quality, "by_length", ("length_bin", *GROUP_COLUMNS)),
        "judge_by_difficulty": judge_part(
            data.quality, "by_difficulty", ("difficulty", *GROUP_COLUMNS)
        ),
        "judge_reliability": judge_part(data.quality, "reliability", (*kinds, "score", "accuracy")),
        "judge_histogram": judge_part(data.quality, "histogram", (*kinds, "label")),
    }


def attack_families(attacks: pd.DataFrame) -> pd.DataFrame:
    """Each family of attacks: mean lift over its kinds, and its most effective kind."""
    rows = []
    for family, part in attacks.groupby("family", sort=False):
        best = part.loc[part["lift"].idxmax()]
        rows.append(
            {
                "family": family,
                "attacks": len(part),
                "mean_lift": part["lift"].mean(),
                "most_effective": best["attack"],
                "its_lift": best["lift"],
                "interval_above_0": int((part["low"] > 0).sum()),
                "structure_changed": int(part["structure_changed"].sum()),
            }
        )
    table = pd.DataFrame(rows).sort_values("mean_lift", ascending=False, kind="stable")
    return table.reset_index(drop=True)


def _frame(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> pd.DataFrame:
    return pd.DataFrame(rows).reindex(columns=list(columns))

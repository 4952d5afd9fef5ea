"""The scoring study: what `refblend judge robustness`, `attacks` and `quality` measured; tables."""

from dataclasses import dataclass
from typing import Any

import pandas as pd

from refblend.errors import StudyError
from refblend.study.layout import JUDGES
from refblend.study.report.registry import Inputs, Report
from refblend.study.runs.model_quality import judge_part, judge_table, read_quality

BIN_COLUMNS = ("kind", "low", "high", "count")
ARM = ("experiment", "arm")
ROBUSTNESS_COLUMNS = (
    *ARM, "responses", "overlength", "nonzero_rate", "valid_rate", "fallback_rate", "auc",
    "auc_all", "ece", "tokens_per_response", "new_tokens_per_response", "seconds_per_response",
    "compact_rate", "clipped_rate", "token_path_rate", "judge_error", "score_mean", "score_std",
)  # fmt: skip
LENGTH_COLUMNS = (
    *ARM, "length", "responses", "overlength", "nonzero_rate", "valid_rate", "compact_rate",
    "clipped_rate", "auc",
)  # fmt: skip
ATTACK_COLUMNS = (
    "attack", "family", "n", "neutral_mean", "attacked_mean", "lift", "low", "high", "valid_rate",
    "clipped_rate", "overlength", "structure_changed",
)  # fmt: skip
GROUP_COLUMNS = (
    "count", "share", "right", "auc", "auc_expected", "ece", "ece_expected", "valid_rate",
    "score_mean", "new_tokens",
)  # fmt: skip


@dataclass(frozen=True)
class ScoringStudy:
    """The measurements: experiment D and the attacks on one judge, the quality of all."""

    robustness: dict[str, Any]
    attacks: dict[str, Any]
    quality: dict[str, Any]
    circumstances: dict[str, dict[str, Any]]
    """Commit, machine and times of the measurements that were made here, by name."""


def read_study(inputs: Inputs) -> ScoringStudy:
    """Read the measurements of a scale.

    Raises:
        StudyError: a file is missing, is not JSON, or is not the report of that command.
    """
    measured = inputs.results / "scoring" / "measurements"
    files = [measured / f"{name}.json" for name in ("robustness", "attacks")]
    first, second = (next(iter(read_quality([path]).values())) for path in files)
    quality = read_quality(
        inputs.models / "quality" / f"judge_{strength}.json" for strength in JUDGES
    )
    for path, key, report in zip(files, ("arms", "attacks"), (first, second), strict=True):
        if key not in report:
            raise StudyError(f"{path}: has no {key!r}", "Give a report of `refblend judge`.")
    made = sorted((inputs.collected / "circumstances").glob("*.json"))
    return ScoringStudy(first, second, quality, read_quality(made))


def judge_name(judge: str) -> str:
    """A judge's name for readers: ``judge_medium`` is ``medium``."""
    return judge.removeprefix("judge_")


def commits(study: ScoringStudy) -> str:
    """The commits that measured, shortened, with a note if a work tree was not clean."""
    states = [entry["git"] for entry in study.circumstances.values()]
    names = dict.fromkeys((state["commit"] or "unknown")[:10] for state in states)
    dirty = any(state["dirty"] for state in states)
    return (", ".join(names) or "unknown") + (" with uncommitted changes" if dirty else "")


REPORT = Report("scoring", "Reference scoring", read_study)


@REPORT.table("robustness", shown=True)
def robustness(study: ScoringStudy) -> pd.DataFrame:
    """Experiment D: every configuration of the judge; times are those of the last measurement."""
    times = study.circumstances.get("robustness", {}).get("seconds_per_response", {})
    rows = [
        row | {"seconds_per_response": times.get(row["arm"])} for row in study.robustness["arms"]
    ]
    return _frame(rows, ROBUSTNESS_COLUMNS)


@REPORT.table("robustness_by_length", shown=True)
def robustness_by_length(study: ScoringStudy) -> pd.DataFrame:
    """Experiment D by the response's length."""
    return _frame(study.robustness["by_length"], LENGTH_COLUMNS)


@REPORT.table("attacks", shown=True)
def attacks(study: ScoringStudy) -> pd.DataFrame:
    """Every attack, the most effective first."""
    table = _frame(study.attacks["attacks"], ATTACK_COLUMNS)
    return table.sort_values("lift", ascending=False, kind="stable", ignore_index=True)


@REPORT.table("attack_families", shown=True)
def attack_families(study: ScoringStudy) -> pd.DataFrame:
    """Each family of attacks: mean lift over its kinds, and its most effective kind."""
    rows = []
    for family, part in _frame(study.attacks["attacks"], ATTACK_COLUMNS).groupby(
        "family", sort=False
    ):
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


@REPORT.table("judge_quality", shown=True)
def judge_quality(study: ScoringStudy) -> pd.DataFrame:
    """Every judge and form of the prompt on held-out responses."""
    return judge_table(study.quality)


@REPORT.table("judge_by_length")
def judge_by_length(study: ScoringStudy) -> pd.DataFrame:
    """The judges by the response's length."""
    return judge_part(study.quality, "by_length", ("length_bin", *GROUP_COLUMNS))


@REPORT.table("judge_by_difficulty")
def judge_by_difficulty(study: ScoringStudy) -> pd.DataFrame:
    """The judges by the problem's number of steps."""
    return judge_part(study.quality, "by_difficulty", ("difficulty", *GROUP_COLUMNS))


@REPORT.table("judge_reliability")
def judge_reliability(study: ScoringStudy) -> pd.DataFrame:
    """Share of right answers in bins of the score."""
    return judge_part(study.quality, "reliability", (*BIN_COLUMNS, "score", "accuracy"))


@REPORT.table("judge_histogram")
def judge_histogram(study: ScoringStudy) -> pd.DataFrame:
    """Number of scores in bins, of right and of wrong answers."""
    return judge_part(study.quality, "histogram", (*BIN_COLUMNS, "label"))


@REPORT.table("judge_misjudged")
def judge_misjudged(study: ScoringStudy) -> pd.DataFrame:
    """The wrong answers with the highest expected scores, of every judge and form of the prompt."""
    return judge_part(study.quality, "misjudged", ("question", "response", "raw", "expected"))


def _frame(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> pd.DataFrame:
    return pd.DataFrame(rows).reindex(columns=list(columns))

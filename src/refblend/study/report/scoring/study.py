"""The scoring study's input: what `refblend judge robustness`, `attacks` and `quality` measured."""

from dataclasses import dataclass
from typing import Any

from refblend.errors import StudyError
from refblend.study.layout import JUDGES
from refblend.study.report.registry import Inputs, Report
from refblend.study.runs.model_quality import read_quality


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

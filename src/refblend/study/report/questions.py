"""The question that a contrast answers, by what the configurations of its two arms are."""

from collections.abc import Iterable, Mapping
from typing import Any

from refblend.ppo.weights import described
from refblend.study.design.arms import Arm
from refblend.study.report.verdicts import by_verdict

QUESTIONS = ("oracle", "judge", "judgement", "entropy", "other")
"""Could any score help, does the judge's, is it its judgement, is it the entropy; everything else,
such as dose, placement and schedule."""


def by_question(rows: Iterable[dict[Any, Any]], arms: Mapping[str, Arm]) -> dict[str, Any]:
    """Rows of verdicts by their question, each of :data:`QUESTIONS` :func:`by_verdict`."""
    found: dict[str, list[dict[Any, Any]]] = {name: [] for name in QUESTIONS}
    for row in rows:
        treated, reference = arms.get(row["treated"]), arms.get(row["reference"])
        found[question_of(treated, reference) if treated and reference else "other"].append(row)
    return {name: by_verdict(part) for name, part in found.items()}


def question_of(treated: Arm, reference: Arm) -> str:
    """The one of :data:`QUESTIONS` that a contrast of two arms is about."""
    if not treated.blends:
        return "other"
    if not reference.blends:
        return {"oracle": "oracle", "none": "judge"}.get(treated.control, "other")
    if treated.control == "none" and reference.control in ("shuffled", "random"):
        return "judgement"
    real = treated.control == reference.control == "none"
    if real and follows_entropy(treated) and not follows_entropy(reference):
        return "entropy"
    return "other"


def follows_entropy(arm: Arm) -> bool:
    """Whether an arm's weight is a function of the entropy."""
    return "entropy_high_threshold" in described(arm.strategy).parameters

"""M2's and M3's answers by question, and how far they reach.

A contrast belongs to the question that its arms' configurations pose
(:mod:`refblend.study.report.questions`); no experiment's letter or arm's name is known here.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from refblend.study.design.arms import SCORE, Arm
from refblend.study.report.m3.arms import rule_reward
from refblend.study.report.m3.study import M3Study
from refblend.study.report.questions import by_question
from refblend.study.report.verdicts import by_verdict

Rows = list[dict[Any, Any]]
FLAT = ("worse", "equivalent")
"""Verdicts of a judge that brings nothing."""


def answered(study: M3Study, m2: Rows, own: Rows, arms: Mapping[str, Arm]) -> dict[str, Any]:
    """Rows of primary contrasts by question: M2's, M3's and both.

    ``limited`` is :func:`limited`, ``reach`` what :func:`entropy_reach` says.
    """
    fresh = {name: Arm(name, config) for name, config in study.configs.items()}
    found = by_question(m2, arms)
    confirming = by_question(own, fresh)
    return {
        "questions": found,
        "fresh": confirming,
        "together": {
            name: by_verdict([*found[name]["rows"], *confirming[name]["rows"]]) for name in found
        },
        "limited": limited(found, arms),
        "reach": entropy_reach(found["entropy"]["equivalent"], arms),
    }


def limited(found: Mapping[str, Any], arms: Mapping[str, Arm]) -> dict[str, Any] | None:
    """Judges' arms without a gain whose reference an oracle beats; null where there are none.

    ``names`` of them all, ``alike`` of those that differ from that oracle in the score alone, and
    the oracles' ``strategies`` and ``placements``.
    """
    oracles: dict[str, list[str]] = {}
    for row in found["oracle"]["better"]:
        oracles.setdefault(row["reference"], []).append(row["treated"])
    rows = [
        row
        for row in found["judge"]["rows"]
        if row["reference"] in oracles and row["verdict"] in FLAT
    ]
    if not rows:
        return None
    control = f"{SCORE}.scoring.control"
    alike = [
        row["treated"]
        for row in rows
        if any(
            arms[row["treated"]].differs_only_in(arms[oracle], control)
            for oracle in oracles[row["reference"]]
        )
    ]
    ideal = [arms[name] for row in rows for name in oracles[row["reference"]]]
    return {
        "names": _unique([row["treated"] for row in rows]),
        "alike": _unique(alike),
        "strategies": _unique([arm.strategy for arm in ideal]),
        "placements": _unique([arm.placement for arm in ideal]),
    }


def entropy_reach(rows: Rows, arms: Mapping[str, Arm]) -> str:
    """Under which conditions a weight that follows the entropy was compared with one that does
    not: what all treated arms of these contrasts have in common."""
    treated = [arms[row["treated"]] for row in rows if row["treated"] in arms]
    rewards = _unique([rule_reward(arm.config) for arm in treated])
    placements = _unique([arm.placement for arm in treated])
    where = {"terminal": "the score on the last token", "per_token": "the score on every token"}
    said = [f"an {rewards[0]} rule reward"] if rewards == ["exact"] else []
    if len(placements) == 1 and placements[0] in where:
        said.append(where[placements[0]])
    return " and ".join(said)


def _unique(names: Sequence[Any]) -> list[str]:
    return list(dict.fromkeys(map(str, names)))

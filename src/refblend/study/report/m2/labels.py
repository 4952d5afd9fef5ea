"""Names and colours of arms and levels in M2's figures, from what they are."""

from refblend.study.report.m2.study import M2Study
from refblend.study.report.plotting.style import BASELINE_COLOUR, strategy_colours

LEVEL_NAMES = {
    "per_token": "per token",
    "terminal": "terminal",
    "per_token_mean": "per-token mean",
    "grpo": "GRPO",
    "gae": "GAE",
    "global_pool": "shared pool",
    "judge_pool": "dedicated pool",
    "True": "on",
    "False": "off",
}
"""Levels with a name of their own."""


def level_name(level: str) -> str:
    """A level for a label."""
    return LEVEL_NAMES.get(level, in_words(level))


def in_words(arm: str) -> str:
    """An arm's name for a label: no underscores."""
    return arm.replace("_", " ")


def arm_colour(study: M2Study, arm: str) -> str:
    """Colour of an arm's strategy or control; grey without a judge."""
    return strategy_colours().get(study.resolved[arm].blend, BASELINE_COLOUR)


def arm_labels(study: M2Study, experiment: str) -> dict[str, str]:
    """Treated arm → label: its strategy or control where that tells the arms of each facet apart,
    so that the facets of a figure share their labels; its name elsewhere."""
    facets = study.facets(experiment)
    blends = {arm: study.resolved[arm].blend for arms in facets.values() for arm in arms}
    if len(facets) > 1 and all(
        len({blends[arm] for arm in arms}) == len(arms) for arms in facets.values()
    ):
        return blends
    return {arm: in_words(arm) for arm in blends}

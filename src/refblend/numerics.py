"""Versions of the numbers: one integer per purpose, raised by hand when its numbers change.

``numerics.json`` holds them, and the golden runs (``tests/golden``) show whether a number changed.
Run identity, Snakemake and DVC depend on the purposes that they use, so a fix in ``reward.math``
makes no run of another reward stale, and an edit that changes no number makes nothing stale.
"""

import functools
from collections.abc import Iterable
from pathlib import Path

from refblend.config.root import RefblendConfig
from refblend.config.scoring import JUDGES
from refblend.files import read_object

FIRST = 1
"""The version of a purpose that a record does not name."""


@functools.cache
def _all() -> dict[str, int]:
    return read_object(Path(__file__).with_name("numerics.json"))


def versions(*purposes: str) -> dict[str, int]:
    """The versions of these purposes, by name; KeyError for an unknown one."""
    return {purpose: _all()[purpose] for purpose in sorted(purposes)}


def training_purposes(config: RefblendConfig, rewards: Iterable[str] = ()) -> list[str]:
    """The purposes on which a run of this configuration depends.

    ``rewards`` are those of its rows (:func:`refblend.rewards.rule.reward_purposes`).
    """
    found = {"train", *rewards}
    scoring = config.algorithm.ref_quality_score.scoring
    if config.use_judge and scoring.kind in JUDGES and scoring.kind != "reward_model":
        found |= {"judge.prompt", "judge.parse"}
    verifier = config.reward.verifier
    oracle = config.algorithm.ref_quality_score.enable and scoring.control == "oracle"
    if verifier.checked_share < 1.0 or verifier.flip_rate > 0.0 or oracle:
        found.add("reward.imperfect")
    if config.algorithm.repr_align.enable:
        found.add("reward.alignment")
    return sorted(found)

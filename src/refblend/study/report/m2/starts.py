"""Warm starts: which runs began from the same models.

A study whose models were made anew half-way has runs of several warm starts. What was learnt from
one of them says nothing of an arm that began from another, so nothing is averaged over them, and
nothing is compared across them.
"""

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from refblend.study.design.arms import Arm
from refblend.study.runs.collect import used_models


def starts_of(runs: pd.DataFrame, arms: Mapping[str, Arm]) -> dict[str, dict[str, list[int]]]:
    """Arm → the warm starts of its runs, each with its seeds, both ascending by seed.

    A warm start is named by the digest of the actor that the runs began from. Runs without a record
    of it belong to the only one that is known of their arm, or of the study; where there are
    several, or none is known, to ``unknown``.
    """
    models = used_models(runs)
    actors = {
        name: Path(str(arm.config.actor_rollout_ref.model.path)).name for name, arm in arms.items()
    }
    models = models[models.role == models.arm.map(actors)]
    table = runs[["arm", "seed"]].merge(models, on=["arm", "seed"], how="left").sort_values("seed")
    of_study = _only(table.digest)
    found: dict[str, dict[str, list[int]]] = {}
    for arm, part in table.groupby("arm", sort=False):
        known = part.digest.fillna(_only(part.digest) or of_study or "unknown")
        for start, seed in zip(known, part.seed, strict=True):
            found.setdefault(str(arm), {}).setdefault(str(start), []).append(int(seed))
    return found


def _only(digests: pd.Series) -> str | None:
    """The digest that all have that have any."""
    known = digests.dropna().unique()
    return str(known[0]) if len(known) == 1 else None

"""Training jobs: a job trains one arm with a block of seeds, one after another in the same workers.

Which seeds form a block depends on the whole study, not on what is requested, so that a milestone
never retrains what another one has: M1 and M2 share their blocks. M3 confirms on fresh seeds, which
form separate blocks: requesting M2 trains none of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from refblend.study.design.grid import select
from refblend.study.design.spec import load_experiment

CONFIRMING = "m3"
"""The milestone whose seeds form separate blocks."""


@dataclass(frozen=True)
class Block:
    """Seeds of an arm that one job trains, ascending."""

    arm: str
    seeds: tuple[int, ...]

    @property
    def name(self) -> str:
        """The seeds as in file names, e.g. ``1-2-3``."""
        return "-".join(map(str, self.seeds))


def blocks_of(
    grid: pd.DataFrame, studies: Mapping[str, Sequence[str]], seeds_per_job: int
) -> list[Block]:
    """All training jobs of the grid of all milestones; ``studies`` has each one's experiments.

    Returns:
        The blocks by arm in grid order, M3's fresh seeds last; no run is in two of them.
    """
    confirming = set(studies.get(CONFIRMING, ()))
    exploring = [name for stage, names in studies.items() if stage != CONFIRMING for name in names]
    first = _seeds_by_arm(select(grid, exploring))
    fresh = {
        arm: seeds - first.get(arm, set())
        for arm, seeds in _seeds_by_arm(select(grid, sorted(confirming))).items()
    }
    return [
        Block(arm, tuple(ordered[start : start + seeds_per_job]))
        for part in (first, fresh)
        for arm, seeds in part.items()
        for ordered in [sorted(seeds)]
        for start in range(0, len(ordered), seeds_per_job)
    ]


def wanted_blocks(blocks: Sequence[Block], rows: pd.DataFrame) -> list[Block]:
    """The blocks that hold a run of these grid rows, each once."""
    wanted = _seeds_by_arm(rows)
    return [block for block in blocks if wanted.get(block.arm, set()) & set(block.seeds)]


def exclusive_arms(experiments: Sequence[str], params: str | Path = "params") -> set[str]:
    """Arms of experiments that measure resources."""
    specs = [load_experiment(Path(params) / "study" / f"{name}.yaml") for name in experiments]
    return {arm for spec in specs if spec.exclusive for arm in spec.arms}


def _seeds_by_arm(grid: pd.DataFrame) -> dict[str, set[int]]:
    """Arm → its seeds, arms in grid order."""
    found: dict[str, set[int]] = {}
    for arm, seed in zip(grid.arm, grid.seed, strict=True):
        found.setdefault(str(arm), set()).add(int(seed))
    return found

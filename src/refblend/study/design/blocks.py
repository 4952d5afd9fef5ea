"""Training jobs: a job trains one arm with a block of seeds, one after another in the same workers.

Which seeds form a block depends on the whole study, not on what is requested, so that a milestone
never retrains what another one has. Seeds that a later milestone adds form separate blocks:
requesting M1 trains none of M2's, and requesting M2 none of the fresh seeds of M3.
"""

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from refblend.errors import StudyError
from refblend.study.design.grid import select
from refblend.study.design.names import SERIES
from refblend.trainer.replay import partner_seed


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
    grid: pd.DataFrame,
    studies: Mapping[str, Sequence[str]],
    seeds_per_job: int,
    seeds_per_block: int | None = None,
) -> list[Block]:
    """All training jobs of the grid of all milestones; ``studies`` has each one's experiments.

    The blocks of the first milestone come by arm in grid order, then what each later one adds; no
    run is in two of them. ``seeds_per_block`` is the size of a series' jobs.
    """
    blocks: list[Block] = []
    taken: dict[str, set[int]] = {}
    for milestone, names in studies.items():
        size = (seeds_per_block or seeds_per_job) if milestone == SERIES else seeds_per_job
        for arm, seeds in _seeds_by_arm(select(grid, names)).items():
            before = taken.setdefault(arm, set())
            added = sorted(seeds - before)
            before |= seeds
            # Seeds on the two sides of a gap may have been trained from different models, and a job
            # must not mix them.
            for _, run in itertools.groupby(enumerate(added), lambda placed: placed[1] - placed[0]):
                row = [seed for _, seed in run]
                for start in range(0, len(row), size):
                    blocks.append(Block(arm, tuple(row[start : start + size])))
    return blocks


def block_rows(grid: pd.DataFrame, experiment: str, number: int, size: int) -> pd.DataFrame:
    """The grid's rows of the ``number``-th block, from 1 on, of an experiment of the series.

    Its seeds, over all arms, are cut into blocks of ``size`` in ascending order. StudyError if it
    has no row, or fewer blocks.
    """
    rows = select(grid, [experiment])
    numbers = rows.seed.astype("int64")
    seeds = sorted(set(numbers))
    last = -(-len(seeds) // size)
    if not 1 <= number <= last:
        raise StudyError(
            f"experiment {experiment} has no block {number}", f"Name one from 1 to {last}."
        )
    return rows[numbers.isin(seeds[(number - 1) * size : number * size])]


def wanted_blocks(blocks: Sequence[Block], rows: pd.DataFrame) -> list[Block]:
    """The blocks that hold a run of these grid rows, each once."""
    wanted = _seeds_by_arm(rows)
    return [block for block in blocks if wanted.get(block.arm, set()) & set(block.seeds)]


REPLAYED = re.compile(r"runs/[^/]+/(?P<arm>[^/]+)/seed_\{(seed|partner_seed)\}/metrics\.jsonl")
"""Where an arm of a study finds the weights that it replays."""


def replayed_arm(overrides: Mapping[str, Any]) -> str | None:
    """The arm whose recorded weights an arm replays, None where it replays none; or StudyError."""
    file = overrides.get("algorithm.ref_quality_score.replay_file")
    if file is None:
        return None
    found = REPLAYED.fullmatch(str(file))
    if not found:
        raise StudyError(
            f"replay_file {file} is not a run of this study",
            "Write runs/{scale}/ARM/seed_{partner_seed}/metrics.jsonl.",
        )
    return found["arm"]


def replayed_blocks(blocks: Sequence[Block], arm: str, seeds: Sequence[int]) -> list[Block]:
    """The blocks of an arm that hold what these seeds replay: their own weights or a partner's."""
    wanted = {*seeds, *map(partner_seed, seeds)}
    return [block for block in blocks if block.arm == arm and wanted & set(block.seeds)]


def _seeds_by_arm(grid: pd.DataFrame) -> dict[str, set[int]]:
    by_arm = grid.groupby("arm", sort=False).seed
    return {str(arm): set(map(int, seeds)) for arm, seeds in by_arm}

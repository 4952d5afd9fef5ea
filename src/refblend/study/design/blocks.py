"""Training jobs: a job trains one arm with a block of seeds, one after another in the same workers.

Which seeds form a block depends on the whole study, not on what is requested, so that a milestone
never retrains what another one has. Seeds that a later milestone adds form separate blocks:
requesting M1 trains none of M2's, and requesting M2 none of the fresh seeds of M3.
"""

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from refblend.errors import StudyError
from refblend.study.design.grid import select
from refblend.study.design.names import SERIES


def blocks_of(
    grid: pd.DataFrame,
    studies: Mapping[str, Sequence[str]],
    seeds_per_job: int,
    seeds_per_block: int | None = None,
) -> dict[tuple[str, str], str]:
    """The job of every run, (arm, seed): its seeds as in file names, e.g. ``1-2-3``.

    ``studies`` has the experiments of each milestone, of which the first that has a run trains it.
    ``seeds_per_block`` is the size of a series' jobs.
    """
    found: dict[tuple[str, str], str] = {}
    for milestone, names in studies.items():
        size = (seeds_per_block or seeds_per_job) if milestone == SERIES else seeds_per_job
        for arm, rows in select(grid, names).groupby("arm", sort=False):
            added = sorted({int(seed) for seed in rows.seed if (arm, seed) not in found})
            # Seeds on the two sides of a gap may have been trained from different models, and a job
            # must not mix them.
            for _, run in itertools.groupby(enumerate(added), lambda placed: placed[1] - placed[0]):
                row = [str(seed) for _, seed in run]
                for start in range(0, len(row), size):
                    block = row[start : start + size]
                    found |= {(str(arm), seed): "-".join(block) for seed in block}
    return found


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


REPLAYED = re.compile(r"runs/[^/]+/(?P<arm>[^/]+)/seed_\{(seed|partner_seed)\}/metrics\.jsonl")
"""Where an arm of a study finds the weights that it replays."""


def replayed_arm(overrides: Mapping[str, Any]) -> str | None:
    """The arm whose recorded weights an arm replays; None where it replays no run of the study."""
    found = REPLAYED.fullmatch(str(overrides.get("algorithm.ref_quality_score.replay_file")))
    return found and found["arm"]

"""The warm starts of the runs: which models they were trained from, and with which judges.

Rounding decides which warm start a machine makes, so a study that was continued on another machine
has several. Runs say which one was theirs (:func:`refblend.study.runs.collect.used_models`); a
start is an actor's digest.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from refblend.study.design.blocks import seed_ranges
from refblend.study.design.spec import ExperimentSpec
from refblend.study.report.m3.study import M3Study
from refblend.study.runs.archive import archived_models
from refblend.study.runs.collect import used_models


def starts(study: M3Study) -> list[dict[str, Any]]:
    """Each warm start of M2's and M3's runs, those of M3's runs last.

    ``digest``, how many ``runs`` began there, their ``seeds``, M2's ``experiments`` that have them
    (with the arms, where others of the experiment began elsewhere), how many ``judges`` of which
    no other start has one, whether the choice was made on some (``chosen``), and whether runs of
    M3 are among them (``fresh``). Runs without a record
    of their models are in none.
    """
    inputs = study.inputs
    actor = Path(str(study.configs[study.confirmation.baseline].actor_rollout_ref.model.path)).name
    own = used_models(study.collected.runs)
    known = pd.concat([archived_models(inputs.results), own]).drop_duplicates()
    actors = known[known.role == actor].set_index(["arm", "seed"]).digest
    actors = actors[~actors.index.duplicated()]
    fresh = set(zip(study.collected.runs.arm, study.collected.runs.seed, strict=True))
    chosen = {(study.record["baseline"], seed) for seed in study.record["seeds"]}
    found = []
    for digest, part in actors.groupby(actors, sort=False):
        runs = list(part.index)
        judges = known[known.role != actor]
        judged = pd.MultiIndex.from_frame(judges[["arm", "seed"]]).isin(runs)
        found.append(
            {
                "digest": str(digest),
                "runs": len(runs),
                "seeds": seed_ranges({seed for _, seed in runs}),
                "experiments": beginning(
                    study.m2_experiments, inputs.scale, set(runs), set(actors.index)
                ),
                "judges": len(set(judges[judged].digest) - set(judges[~judged].digest)),
                "chosen": bool(chosen & set(runs)),
                "fresh": bool(fresh & set(runs)),
            }
        )
    return sorted(found, key=lambda start: start["fresh"])


def beginning(
    specs: Mapping[str, ExperimentSpec],
    scale: str,
    runs: set[tuple[str, int]],
    known: set[tuple[str, int]],
) -> list[str]:
    """The experiments that have some of ``runs``, with the arms that are theirs alone where others
    of its ``known`` runs are not among these."""
    found = []
    for name, spec in specs.items():
        planned = spec.seeds_by_arm(scale)
        mine, others = _arms(planned, runs), _arms(planned, known - runs)
        if mine and not others:
            found.append(name)
        elif mine:
            few = len(mine) < len(others)
            named = ", ".join(f"`{arm}`" for arm in (mine if few else others))
            found.append(f"{name} ({'' if few else 'without '}{named})")
    return found


def _arms(planned: Mapping[str, Sequence[int]], runs: Iterable[tuple[str, int]]) -> list[str]:
    """The arms of an experiment of whose runs some are among these."""
    among = set(runs)
    return [arm for arm, seeds in planned.items() if any((arm, seed) in among for seed in seeds)]

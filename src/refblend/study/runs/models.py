"""Contrasts that would mix runs of different models."""

from collections.abc import Mapping

import pandas as pd

from refblend.errors import StudyError
from refblend.study.design.spec import ExperimentSpec
from refblend.study.runs.collect import RUN, used_models


def refuse_mixed_models(
    runs: pd.DataFrame, experiments: Mapping[str, ExperimentSpec], scale: str
) -> None:
    """Refuse contrasts whose arms were trained from different models of the same name.

    Rounding decides which warm start a machine makes, and what is learnt from one of them says
    nothing of an arm that was trained from another. Runs without a record of their models pass.

    Raises:
        StudyError: a contrast has such arms; it names the first.
    """
    models = used_models(runs)
    for name, spec in experiments.items():
        seeds = spec.seeds_by_arm(scale)
        for pair in (pair for contrast in spec.contrasts for pair in contrast.pairs.items()):
            own = [(arm, seed) for arm in pair for seed in seeds.get(arm, [])]
            used = models.merge(pd.DataFrame(own, columns=RUN), on=RUN)
            first = used.drop_duplicates(["role", "digest"])
            mixed = first[first.role.duplicated(keep=False)].sort_values("role", kind="stable")
            if len(mixed):
                which = [f"{row.digest} ({row.arm}, seed {row.seed})" for row in mixed.itertuples()]
                raise StudyError(
                    f"{name}: {pair[0]} − {pair[1]} compares runs of different models, "
                    f"{mixed.role.iloc[0]} {' and '.join(which[:2])}",
                    "Give both arms seeds that were trained from the same models.",
                )

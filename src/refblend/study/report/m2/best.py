"""The best arm for every measure, and the arms not distinguishable from it."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from refblend.seeding import derive_generator
from refblend.study.design.measures import MEASURES, with_endpoint
from refblend.study.report.m2.study import REPORT, SCORING, M2Study
from refblend.study.runs.measures import wide
from refblend.study.stats.comparisons import best_configuration
from refblend.study.stats.statistics import student_interval

BEST_MEASURES = (
    "test_greedy", "test_sampled", "val_final", "val_best", "val_gain", "val_auc", "val_drawdown",
    "final_return", "loss_spikes", "grad_spikes", "judge_auc", "nonzero_rate", "valid_rate",
)  # fmt: skip
COST_MEASURES = ("step_seconds", "throughput", "memory_gb", "gpu_memory_gb")
EVERYWHERE = "all"
"""Scope of the arms of all experiments that learn."""

BEST_COLUMNS = [
    "scope", "measure", "direction", "best", "n", "arms", "mean", "low", "high", "share_best",
    "tied", "n_not_distinguishable", "not_distinguishable_from", "without_values",
]  # fmt: skip


def scope_endpoints(study: M2Study) -> dict[str, str]:
    """Among whose arms the best is named, and by which measure: the leading experiments, and all
    that learn, by the first one's endpoint."""
    found = {name: study.experiments[name].endpoint for name in study.leading}
    first = next(iter([*study.leading, *study.learning]), None)
    return found | ({EVERYWHERE: study.experiments[first].endpoint} if first else {})


@REPORT.table("best_per_metric")
def best_per_metric(study: M2Study) -> pd.DataFrame:
    """The best arm for every measure: of each leading experiment, of all that learn, and by costs.

    Only runs that were alone on the machine are compared by time and memory; the judge's time,
    where the experiment varies how it scores.

    Returns:
        :data:`BEST_COLUMNS`; ``share_best``: share of resampled seeds in which it is the best,
        ``tied``: other arms with the same mean.
    """
    scopes: list[tuple[str, list[str], Sequence[str]]] = [
        (
            name,
            study.all_arms() if name == EVERYWHERE else study.arms(name),
            with_endpoint(endpoint, BEST_MEASURES),
        )
        for name, endpoint in scope_endpoints(study).items()
    ]
    for name, spec in study.experiments.items():
        if spec.exclusive:
            judge = any(key.startswith(SCORING) for key in spec.factors.values())
            measures = (*COST_MEASURES, "judge_seconds") if judge else COST_MEASURES
            scopes.append((name, study.arms(name), measures))
    rows = [
        _best_row(study, scope, arms, measure)
        for scope, arms, measures in scopes
        if len(arms) > 1
        for measure in measures
    ]
    return pd.DataFrame([row for row in rows if row], columns=BEST_COLUMNS)


def _best_row(study: M2Study, scope: str, arms: list[str], measure: str) -> dict[str, Any] | None:
    """The best of several arms; null where no two of them have the measure on common seeds."""
    higher = MEASURES[measure].higher_is_better
    assert higher is not None, "only measures with a direction are ranked"
    values = wide(study.values, measure, arms)
    rng = derive_generator("m2", "best", scope, measure)
    best = best_configuration(values, rng, higher_is_better=higher)
    if best.arm is None or not best.gaps:
        return None
    complete = values.drop(columns=list(best.without_values)).dropna()
    own = student_interval(complete[best.arm])
    return {
        "scope": scope,
        "measure": measure,
        "direction": "highest" if higher else "lowest",
        "best": best.arm,
        "n": best.n,
        "arms": len(best.gaps) + 1,
        "mean": own.estimate,
        "low": own.low,
        "high": own.high,
        "share_best": best.share,
        "tied": sum(gap.estimate == 0 for gap in best.gaps.values()),
        "n_not_distinguishable": len(best.not_distinguishable),
        "not_distinguishable_from": ", ".join(map(str, best.not_distinguishable)),
        "without_values": ", ".join(map(str, best.without_values)),
    }

"""Collected runs with given validation curves, healthy otherwise."""

import pandas as pd

from refblend.study.runs.collect import METRIC_COLUMNS, RESPONSE_COLUMNS, RUN_COLUMNS, Collected

ACC = "val-core/refblend/arithmetic/acc/mean@1"
Curves = dict[str, list[list[float]]]
"""Arm → one validation curve a seed, seeds 1, 2, …"""


def collected(curves: Curves, step: int = 4) -> Collected:
    """Runs whose validation accuracies are given; healthy otherwise."""
    runs, metrics = [], []
    for arm, seeds in curves.items():
        for seed, curve in enumerate(seeds, start=1):
            runs.append(
                {"arm": arm, "seed": seed, "status": "finished", "reason": "", "commit": "a" * 40}
                | {"dirty": False, "hardware": "Test CPU", "steps": step * (len(curve) - 1)}
            )
            for place, accuracy in enumerate(curve):
                values = {ACC: accuracy, "actor/entropy": 0.8, "incidents/oom": 0.0}
                if arm != "off":
                    values["actor/ref_quality/valid_rate"] = 1.0
                metrics += [
                    {"arm": arm, "seed": seed, "step": place * step, "metric": name, "value": value}
                    for name, value in values.items()
                ]
    return Collected(
        pd.DataFrame(runs).reindex(columns=list(RUN_COLUMNS)).astype(RUN_COLUMNS),
        pd.DataFrame(metrics).astype(METRIC_COLUMNS),
        pd.DataFrame(columns=list(RESPONSE_COLUMNS)).astype(RESPONSE_COLUMNS),
    )


def grid_of(*runs: tuple[str, int]) -> pd.DataFrame:
    """A grid of these (arm, seed), all of experiment M1 and without overrides."""
    rows = [{"experiment": "M1", "arm": a, "seed": str(s), "overrides": "{}"} for a, s in runs]
    return pd.DataFrame(rows, dtype=str)


def flat(*levels: float) -> list[list[float]]:
    """A curve a seed: 0.2 before training, then that level."""
    return [[0.2, level, level] for level in levels]


def with_metric(runs: Collected, arm: str, seed: int, metric: str, value: float) -> Collected:
    row = {"arm": arm, "seed": seed, "step": 4, "metric": metric, "value": value}
    rest = runs.metrics.query("not (arm == @arm and seed == @seed and metric == @metric)")
    return Collected(runs.runs, pd.concat([rest, pd.DataFrame([row])]), runs.responses)

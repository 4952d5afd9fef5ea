"""One number per run and measure, by which arms are compared, from finished runs' metrics."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from refblend.study.design.measures import ACCURACIES, MEASURES
from refblend.study.runs.alignment import METRIC as ALIGNMENT
from refblend.study.runs.collect import Collected
from refblend.study.runs.curves import (
    results_on_test,
    series,
    stability,
    start_and_end,
    validation_frame,
)
from refblend.study.stats.statistics import area_under_curve, first_reached

RETURN_STEPS = 5
"""Steps at the end of a run over which its final return is averaged."""


FROM_STABILITY = (
    "loss_spikes",
    "grad_spikes",
    "entropy_start",
    "entropy_end",
    "length_end",
    "val_drawdown",
)
REDUCED = {
    "alignment": (ALIGNMENT, "first"),
    "weight_mean": ("actor/ref_quality/weight", "mean"),
    "judge_auc": ("actor/ref_quality/auc", "mean"),
    "nonzero_rate": ("actor/ref_quality/nonzero_rate", "mean"),
    "valid_rate": ("actor/ref_quality/valid_rate", "mean"),
    "step_seconds": ("perf/time_per_step", "median"),
    "throughput": ("perf/throughput", "median"),
    "judge_seconds": ("timing_s/ref_quality_score", "median"),
    "memory_gb": ("perf/cpu_memory_used_gb", "max"),
    "gpu_memory_gb": ("perf/gpu_memory_used_gb", "max"),
}
"""Metric of each measure, and how it is reduced over the steps of a run. Medians are of times: they
leave out a run's first step, which pays for what is set up once. Memory is that of all processes of
a run together."""

COLUMNS = ["arm", "seed", "measure", "value"]
RUN = ["arm", "seed"]


def run_measures(collected: Collected) -> pd.DataFrame:
    """Every measure of every finished run.

    Returns:
        Columns arm, seed, measure, value; a measure that a run does not have (a judge's if there is
        no judge) has no row.
    """
    metrics = collected.counted_metrics
    ends = start_and_end(metrics)
    ends = ends[ends.measure == "acc"]
    parts = [_named(ends, name, f"val_{name}") for name in ("final", "best", "gain", "auc")]
    parts += [_speed(metrics), *_stability(metrics)]
    for name in ("greedy", "sampled"):
        parts.append(_named(results_on_test(metrics, name), "value", f"test_{name}"))
    right = series(metrics, "critic/acc/mean")
    early = right[right.step <= right.groupby(RUN).step.transform("max") / 3]
    parts += [_reduced(right, "train_acc", "mean"), _reduced(early, "train_acc_third", "mean")]
    score = series(metrics, "critic/score/mean")
    parts.append(_reduced(score.groupby(RUN).tail(RETURN_STEPS), "final_return", "mean"))
    steps = metrics[metrics.step > 0]
    later = steps[steps.step > steps.groupby(RUN).step.transform("min")]
    for to, (name, how) in REDUCED.items():
        parts.append(_reduced(series(later if how == "median" else metrics, name), to, how))
    values = pd.concat([part for part in parts if len(part)] or [pd.DataFrame(columns=COLUMNS)])
    values = values.dropna(subset="value")[COLUMNS].astype({"value": "float64", "seed": "int64"})
    order = {name: place for place, name in enumerate(MEASURES)}
    places = values["measure"].map(order)
    return values.assign(place=places).sort_values(["place", *RUN], ignore_index=True)[COLUMNS]


def wide_of(values: pd.DataFrame, measure: str, seeds: Mapping[str, Sequence[int]]) -> pd.DataFrame:
    """:func:`wide` of some seeds of each arm: a row for each of them, NaN for other runs."""
    table = wide(values, measure, list(seeds))
    table = table.reindex(sorted({seed for own in seeds.values() for seed in own}))
    return table.apply(lambda column: column.where(column.index.isin(seeds[str(column.name)])))


def wide(values: pd.DataFrame, measure: str, arms: Sequence[str]) -> pd.DataFrame:
    """One row per seed (the index), one column per arm in the given order; NaN if missing.

    ``values`` are those of :func:`run_measures`.
    """
    part = values[(values.measure == measure) & values.arm.isin(list(arms))]
    table = part.pivot(index="seed", columns="arm", values="value")
    table = table.reindex(columns=list(arms)).astype("float64")
    table.columns.name = None
    return table.sort_index()


def _speed(metrics: pd.DataFrame) -> pd.DataFrame:
    """How fast the greedy validation accuracy rises: area of the first third, steps to a level."""
    frame = validation_frame(metrics)
    rows = []
    for (arm, seed), part in frame[frame.measure == "acc"].groupby(RUN):
        steps, values = (part.sort_values("step")[name].to_numpy() for name in ("step", "value"))
        third = np.append(steps[steps < steps[-1] / 3], steps[-1] / 3)
        area = area_under_curve(third, np.interp(third, steps, values))
        rows.append((arm, seed, "val_auc_third", area))
        rows += [
            (arm, seed, f"steps_to_{percent}", first_reached(steps, values, percent / 100))
            for percent in ACCURACIES
        ]
    return pd.DataFrame(rows, columns=COLUMNS)


def _stability(metrics: pd.DataFrame) -> list[pd.DataFrame]:
    frame = stability(metrics)
    if frame.empty:
        return []
    collapsed = frame["entropy_collapse"].notna().where(frame["entropy_start"].notna())
    frame = frame.assign(entropy_collapse=collapsed.astype("float64"))
    return [_named(frame, name, name) for name in (*FROM_STABILITY, "entropy_collapse")]


def _reduced(rows: pd.DataFrame, name: str, how: str) -> pd.DataFrame:
    if rows.empty:
        return pd.DataFrame(columns=COLUMNS)
    values = rows.groupby(RUN)["value"].agg(how).replace([np.inf, -np.inf], np.nan)
    return values.reset_index().assign(measure=name)


def _named(frame: pd.DataFrame, column: str, name: str) -> pd.DataFrame:
    part = frame[[*RUN, column]].rename(columns={column: "value"})
    return part.assign(measure=name)

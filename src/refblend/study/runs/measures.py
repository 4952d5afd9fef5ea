"""One number per run and measure, by which arms are compared, from finished runs' metrics."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from refblend.study.design.measures import ACCURACIES, MEASURES
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
MEANS = {
    "weight_mean": "actor/ref_quality/weight",
    "judge_auc": "actor/ref_quality/auc",
    "nonzero_rate": "actor/ref_quality/nonzero_rate",
    "valid_rate": "actor/ref_quality/valid_rate",
}
"""Averaged over the steps of a run."""

MEDIANS = {
    "step_seconds": "perf/time_per_step",
    "throughput": "perf/throughput",
    "judge_seconds": "timing_s/ref_quality_score",
}
"""Median over the steps after a run's first, which pays for what is set up once."""

PEAKS = {"memory_gb": "perf/cpu_memory_used_gb", "gpu_memory_gb": "perf/gpu_memory_used_gb"}
"""Largest value of a run; all processes of a run together."""

COLUMNS = ["arm", "seed", "measure", "value"]
RUN = ["arm", "seed"]


def run_measures(collected: Collected) -> pd.DataFrame:
    """Every measure of every finished run.

    Returns:
        Columns arm, seed, measure, value; a measure that a run does not have (a judge's if there is
        no judge) has no row.
    """
    metrics = collected.counted_metrics
    parts = [
        *_validation(metrics),
        _speed(metrics),
        *_stability(metrics),
        *_test(metrics),
        _final_return(metrics),
    ]
    parts += [_reduced(series(metrics, name), to, "mean") for to, name in MEANS.items()]
    steps = metrics[metrics.step > 0]
    later = steps[steps.step > steps.groupby(RUN).step.transform("min")]
    parts += [_reduced(series(later, name), to, "median") for to, name in MEDIANS.items()]
    parts += [_reduced(series(metrics, name), to, "max") for to, name in PEAKS.items()]
    values = pd.concat([part for part in parts if len(part)] or [pd.DataFrame(columns=COLUMNS)])
    values = values.dropna(subset="value")[COLUMNS].astype({"value": "float64", "seed": "int64"})
    order = {name: place for place, name in enumerate(MEASURES)}
    places = values["measure"].map(order)
    return values.assign(place=places).sort_values(["place", *RUN], ignore_index=True)[COLUMNS]


def wide(values: pd.DataFrame, measure: str, arms: Sequence[str]) -> pd.DataFrame:
    """One row per seed (the index), one column per arm in the given order; NaN if missing.

    ``values`` are those of :func:`run_measures`.
    """
    part = values[(values.measure == measure) & values.arm.isin(list(arms))]
    table = part.pivot(index="seed", columns="arm", values="value")
    table = table.reindex(columns=list(arms)).astype("float64")
    table.columns.name = None
    return table.sort_index()


def _validation(metrics: pd.DataFrame) -> list[pd.DataFrame]:
    ends = start_and_end(metrics)
    ends = ends[ends.measure == "acc"]
    names = {"val_final": "final", "val_best": "best", "val_gain": "gain", "val_auc": "auc"}
    return [_named(ends, column, name) for name, column in names.items()]


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


def _test(metrics: pd.DataFrame) -> list[pd.DataFrame]:
    return [
        _named(results_on_test(metrics, name), "value", f"test_{name}")
        for name in ("greedy", "sampled")
    ]


def _final_return(metrics: pd.DataFrame) -> pd.DataFrame:
    """Mean rule reward of the training responses over the last steps."""
    score = series(metrics, "critic/score/mean")
    return _reduced(score.groupby(RUN).tail(RETURN_STEPS), "final_return", "mean")


def _reduced(rows: pd.DataFrame, name: str, how: str) -> pd.DataFrame:
    """One value per run: ``how`` over its rows."""
    if rows.empty:
        return pd.DataFrame(columns=COLUMNS)
    values = rows.groupby(RUN)["value"].agg(how).replace([np.inf, -np.inf], np.nan)
    return values.reset_index().assign(measure=name)


def _named(frame: pd.DataFrame, column: str, name: str) -> pd.DataFrame:
    """A column of a frame with one row per run, as a measure."""
    part = frame[[*RUN, column]].rename(columns={column: "value"})
    return part.assign(measure=name)

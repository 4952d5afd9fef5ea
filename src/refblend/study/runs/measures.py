"""One number per run and measure, by which arms are compared, from finished runs."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from refblend.ppo.metrics import grouped_auc
from refblend.study.design.measures import MEASURES
from refblend.study.runs.collect import RUN, STEP, Collected, runs_of
from refblend.study.runs.run_files import ALIGNMENT
from refblend.study.stats.statistics import (
    area_under_curve,
    count_spikes,
    has_collapsed,
    largest_drawdown,
)
from refblend.trainer.console import accuracies
from refblend.trainer.guards import SANITY_SOURCE

LOSS = ("actor/pg_loss", "actor/loss")
"""Policy loss; the first that a run has."""
ENTROPY = ("actor/ref_quality/avg_entropy", "actor/entropy")
"""Entropy of the actor; the first that a run has."""
GRADIENT, LENGTH = "actor/grad_norm", "response_length/mean"

RETURN_STEPS = 5
"""Steps at the end of a run over which its final return is averaged."""
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
    "test_greedy": ("test/greedy", "last"),
    "test_sampled": ("test/sampled", "last"),
}
"""Metric of each measure, and how it is reduced over the steps of a run. Medians are of times: they
leave out a run's first step, which pays for what is set up once. Memory is that of all processes of
a run together."""


def series(metrics: pd.DataFrame, *names: str) -> pd.DataFrame:
    """Arm, seed, step and value of whichever of ``names`` most runs recorded (the first of equals).

    One name for all runs: arms without a judge may lack a metric, and two almost identical metrics
    must not be mixed in one figure.
    """
    table = metrics.reindex(columns=[*STEP, *names])
    best = max(names, key=lambda name: len(table.dropna(subset=name).drop_duplicates(RUN)))
    known = table[[*STEP, best]].dropna().rename(columns={best: "value"})
    return known.sort_values(STEP, ignore_index=True)


def accuracy_by_step(metrics: pd.DataFrame) -> pd.DataFrame:
    """Greedy validation accuracy: arm, seed, step and value, the mean over data sources.

    The sanity set does not count.
    """
    named = accuracies(metrics.columns)
    names = [name for name, source in named.items() if source != SANITY_SOURCE]
    table = metrics[STEP].assign(value=metrics[names].mean(axis=1))
    return table.dropna().sort_values(STEP, ignore_index=True)


def course(run: pd.DataFrame, names: Sequence[str]) -> pd.Series:
    """The first of ``names`` that a run recorded, from its first value on; empty without any.

    ``run`` has a column for each metric and a row for each step; NaN where it was not finite.
    """
    for name in names:
        if name in run and (first := run[name].first_valid_index()) is not None:
            return run.loc[first:, name]
    return pd.Series(dtype=float)


def run_measures(collected: Collected) -> pd.DataFrame:
    """Every measure of every finished run: arm, seed, and a column for each of :data:`MEASURES`.

    NaN for what a run does not have, a judge's measures without a judge.
    """
    metrics = collected.counted_metrics.sort_values(STEP, ignore_index=True)
    right, score = series(metrics, "critic/acc/mean"), series(metrics, "critic/score/mean")
    early = right[right.step <= right.groupby(RUN).step.transform("max") / 3]
    found = {
        "train_acc": right.groupby(RUN)["value"].mean(),
        "train_acc_third": early.groupby(RUN)["value"].mean(),
        "final_return": score.groupby(RUN).tail(RETURN_STEPS).groupby(RUN)["value"].mean(),
    }
    steps = metrics[metrics.step > 0]
    later = steps[steps.step > steps.groupby(RUN).step.transform("min")]
    for name, (metric, how) in REDUCED.items():
        part = series(later if how == "median" else metrics, metric)
        found[name] = part.groupby(RUN)["value"].agg(how)
    curves = accuracy_by_step(metrics).groupby(RUN)
    validated = {run: validation(curve) for run, curve in curves}
    rows = [
        {"arm": run[0], "seed": run[1]} | validated.get(run, {}) | stability(steps)
        for run, steps in metrics.groupby(RUN)
    ]
    others = [name for name in MEASURES if name not in found]
    parts = [pd.DataFrame(found), pd.DataFrame(rows, columns=[*RUN, *others]).set_index(RUN)]
    table = pd.concat(parts, axis=1).sort_index().replace([np.inf, -np.inf], np.nan)
    table = table[list(MEASURES)].astype("float64").reset_index()
    return table.astype({"arm": "str", "seed": "int64"})


def validation(curve: pd.DataFrame) -> dict[str, float]:
    """A run's measures of its validation accuracy, :func:`accuracy_by_step`.

    Without a validation before training there is no gain.
    """
    steps, values = curve.step.to_numpy(), curve.value.to_numpy()
    third = np.append(steps[steps < steps[-1] / 3], steps[-1] / 3)
    return {
        "val_final": values[-1],
        "val_best": values.max(),
        "val_gain": values[-1] - values[0] if steps[0] == 0 else np.nan,
        "val_auc": area_under_curve(steps, values),
        "val_auc_third": area_under_curve(third, np.interp(third, steps, values)),
        "val_drawdown": largest_drawdown(values),
    }


def stability(run: pd.DataFrame) -> dict[str, float]:
    """A run's measures of stability, from its metrics in the order of its steps.

    Spikes are steps outside median ± 5·1.4826·MAD; ``entropy_collapse`` is 0 or 1.
    """
    trained = run[run.step > 0]
    if trained.empty:
        return {}
    entropy, length = course(trained, ENTROPY), course(trained, [LENGTH])
    found: dict[str, float] = {"loss_spikes": count_spikes(course(trained, LOSS))}
    found["grad_spikes"] = count_spikes(course(trained, [GRADIENT]))
    if len(entropy):
        found |= {"entropy_start": entropy.iloc[0], "entropy_end": entropy.dropna().iloc[-1]}
        found["entropy_collapse"] = float(has_collapsed(entropy))
    if len(length):
        found["length_end"] = length.dropna().iloc[-1]
    return found


def wide(values: pd.DataFrame, measure: str, seeds: Mapping[str, Sequence[int]]) -> pd.DataFrame:
    """A measure of some runs, given as each arm's seeds: one row per seed, one column per arm.

    ``values`` are those of :func:`run_measures`; NaN for runs that are not there, or not asked for.
    """
    runs = runs_of(seeds).merge(values, on=RUN, how="left")
    table = runs.pivot(index="seed", columns="arm", values=measure)
    return table.reindex(columns=list(seeds)).rename_axis(columns=None)


def auc_within(responses: pd.DataFrame, n: int) -> float:
    """AUC of a run's scores among the n responses to the same prompt, all such pairs together.

    This is what a policy trained on groups sees of a judge. Valid scores only; NaN where no prompt
    has right and wrong responses. The responses of a step are in recorded order, n per prompt.
    """
    place = responses.groupby("step").cumcount() // n
    prompts = pd.MultiIndex.from_arrays([responses.step, place]).factorize()[0]
    valid = responses.judge_valid.fillna(False).to_numpy(bool)
    kept = responses[valid]
    aucs, pairs = grouped_auc(kept.judge_score.to_numpy(), kept.acc.to_numpy(), prompts[valid])
    return float(np.average(aucs, weights=pairs)) if len(aucs) else np.nan

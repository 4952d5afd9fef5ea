"""What a report says of its runs: incidents, resources, and the origin of its numbers."""

import pandas as pd

from refblend.study.runs.collect import Collected
from refblend.study.runs.curves import series

INCIDENTS = (
    "overlength", "oom", "nonfinite", "judge_invalid", "judge_error", "reward_error", "drift",
)  # fmt: skip
"""Counters ``incidents/<name>``: events of each step."""

RESOURCE_MEASURES = {"perf/time_per_step": "seconds_a_step", "perf/throughput": "tokens_a_second"}


def unfinished(collected: Collected) -> list[str]:
    """A phrase for each run that did not finish."""
    runs = collected.runs[collected.runs.status != "finished"]
    return [
        f"{row.arm} seed {row.seed} is {row.status}" + (f" ({row.reason})" if row.reason else "")
        for row in runs.itertuples()
    ]


def incident_totals(collected: Collected) -> dict[str, int]:
    """Incidents of each kind over all runs, failed ones included."""
    metrics = collected.metrics
    return {
        name: int(metrics[metrics.metric == f"incidents/{name}"]["value"].sum())
        for name in INCIDENTS
    }


def incident_counts(metrics: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Incidents of every run that has metrics, summed over its steps; also of failed runs.

    Returns:
        Columns arm, seed, status, then one per kind of incident.
    """
    part = metrics[metrics.metric.isin([f"incidents/{kind}" for kind in INCIDENTS])]
    counts = part.groupby(["arm", "seed", "metric"])["value"].sum().unstack("metric")
    counts = counts.reindex(columns=[f"incidents/{kind}" for kind in INCIDENTS])
    counts.columns = pd.Index(INCIDENTS)
    merged = runs[["arm", "seed", "status"]].merge(
        counts.reset_index(), on=["arm", "seed"], how="left"
    )
    ran = ~merged.status.eq("missing")
    merged.loc[ran, list(INCIDENTS)] = merged.loc[ran, list(INCIDENTS)].fillna(0)
    return merged.astype(dict.fromkeys(INCIDENTS, "Int64"))


def incidents_table(collected: Collected) -> pd.DataFrame:
    """Incidents of every run and their sum, with the reason of runs that did not finish."""
    counts = incident_counts(collected.metrics, collected.runs)
    counts["reason"] = collected.runs["reason"].to_numpy()
    total = counts[list(INCIDENTS)].sum(min_count=1)
    last = {"arm": "all", "status": f"{(counts.status == 'finished').sum()} of {len(counts)}"}
    counts["seed"] = counts["seed"].astype("Int64")
    return pd.concat([counts, pd.DataFrame([last | total.to_dict()])], ignore_index=True).astype(
        dict.fromkeys(INCIDENTS, "Int64") | {"seed": "Int64"}
    )


def resources(collected: Collected) -> pd.DataFrame:
    """Every run: steps, wall time, pace, energy (an estimate), and how often it was resumed."""
    kept = ["arm", "seed", "status", "steps", "wall_time_s", "energy_kwh", "kg_co2e", "resumed"]
    table = collected.runs[kept].copy()
    for metric, name in RESOURCE_MEASURES.items():
        part = series(collected.metrics, metric)
        medians = part.groupby(["arm", "seed"])["value"].median().rename(name)
        table = table.merge(medians, left_on=["arm", "seed"], right_index=True, how="left")
    memory = series(collected.metrics, "perf/cpu_memory_used_gb")
    peak = memory.groupby(["arm", "seed"])["value"].max().rename("peak_memory_gb")
    return table.merge(peak, left_on=["arm", "seed"], right_index=True, how="left")

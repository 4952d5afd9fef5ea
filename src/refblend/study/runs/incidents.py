"""What a report says of its runs: incidents, resources, and the origin of its numbers."""

import pandas as pd

from refblend.study.runs.collect import RUN, Collected
from refblend.study.runs.measures import series

INCIDENTS = (
    "overlength", "oom", "nonfinite", "judge_invalid", "judge_error", "reward_error", "drift",
)  # fmt: skip
"""Counters ``incidents/<name>``: events of each step."""

RESOURCES = {
    "seconds_a_step": ("perf/time_per_step", "median"),
    "tokens_a_second": ("perf/throughput", "median"),
    "peak_memory_gb": ("perf/cpu_memory_used_gb", "max"),
}
"""Metric of each number, and how it is reduced over the steps of a run."""


def incident_totals(collected: Collected) -> dict[str, int]:
    """Incidents of each kind over all runs, failed ones included."""
    counts = incident_counts(collected)
    return {kind: int(counts[kind].sum()) for kind in INCIDENTS}


def incident_counts(collected: Collected) -> pd.DataFrame:
    """Arm, seed and status of every run, and its incidents of each kind; NA where it is missing."""
    names = {f"incidents/{kind}": kind for kind in INCIDENTS}
    events = collected.metrics.rename(columns=names).reindex(columns=[*RUN, *INCIDENTS])
    counts = events.groupby(RUN, as_index=False).sum()
    table = collected.runs[[*RUN, "status"]].merge(counts, on=RUN, how="left")
    ran = table.status != "missing"
    table.loc[ran, list(INCIDENTS)] = table.loc[ran, list(INCIDENTS)].fillna(0)
    return table.astype(dict.fromkeys(INCIDENTS, "Int64"))


def incidents_table(collected: Collected) -> pd.DataFrame:
    """Incidents of every run and their sum, with the reason of runs that did not finish."""
    counts = incident_counts(collected)
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
    for name, (metric, how) in RESOURCES.items():
        part = series(collected.metrics, metric).groupby(RUN)["value"].agg(how)
        table = table.join(part.rename(name), on=RUN)
    return table

"""What a report says of its runs: incidents, resources, and the origin of its numbers."""

import pandas as pd

from refblend.study.runs.collect import RUN, Collected

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
    counts = incident_counts(collected).assign(reason=collected.runs["reason"].to_numpy())
    last = {"arm": "all", "status": f"{(counts.status == 'finished').sum()} of {len(counts)}"}
    last |= counts[list(INCIDENTS)].sum(min_count=1).to_dict()
    types = dict.fromkeys(["seed", *INCIDENTS], "Int64")
    both = [counts.astype(types), pd.DataFrame([last])]
    return pd.concat(both, ignore_index=True).astype(types)


def resources(collected: Collected) -> pd.DataFrame:
    """Every run: steps, wall time, pace, energy (an estimate), and how often it was resumed."""
    kept = [*RUN, "status", "steps", "wall_time_s", "energy_kwh", "kg_co2e", "resumed"]
    used = [metric for metric, _ in RESOURCES.values()]
    steps = collected.metrics.reindex(columns=[*RUN, *used]).groupby(RUN)
    return collected.runs[kept].join(steps.agg(**RESOURCES), on=RUN)

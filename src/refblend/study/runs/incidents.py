"""What a report says of its runs: incidents, resources, and the origin of its numbers."""

from collections.abc import Collection
from typing import Any

import pandas as pd

from refblend.errors import StudyError
from refblend.study.runs.collect import Collected
from refblend.study.runs.curves import series

INCIDENTS = (
    "overlength", "oom", "nonfinite", "judge_invalid", "judge_error", "reward_error", "drift",
)  # fmt: skip
"""Counters ``incidents/<name>``: events of each step."""

RESOURCE_MEASURES = {"perf/time_per_step": "seconds_a_step", "perf/throughput": "tokens_a_second"}


def split_limit(text: str, kinds: Collection[str]) -> tuple[str, str]:
    """Kind and number of a limit on incidents, ``kind=number``; the number as it was written.

    Raises:
        StudyError: another kind.
    """
    kind, _, number = text.partition("=")
    if kind not in kinds:
        raise StudyError(
            f"--tolerated {text}: unknown incident {kind!r}",
            f"Use one of {', '.join(kinds)}, as in --tolerated oom=0.",
        )
    return kind, number


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


def in_run_order(frame: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Rows in the order of the grid; runs without a row get one with their status."""
    if frame.empty:
        frame = frame.reindex(columns=[*{"arm": 0, "seed": 0} | dict.fromkeys(frame.columns, 0)])
        frame = frame.astype({"arm": "str", "seed": "int64"})
    return runs[["arm", "seed", "status"]].merge(
        frame.drop(columns="status", errors="ignore"), on=["arm", "seed"], how="left"
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


def commit_text(collected: Collected) -> str:
    """The commits that trained the runs, shortened, with a note if the work tree was not clean."""
    known = collected.runs[collected.runs.commit.fillna("") != ""]
    commits = [commit[:10] for commit in dict.fromkeys(known.commit)]
    dirty = bool(known.dirty.fillna(False).any())
    return (", ".join(commits) or "unknown") + (" with uncommitted changes" if dirty else "")


def origin(collected: Collected) -> str:
    """The number of runs behind a figure, and the commit that trained them."""
    counts = collected.finished.groupby("arm", sort=False).size()
    runs = ", ".join(f"{arm} n = {count}" for arm, count in counts.items()) or "none"
    absent = len(collected.runs) - len(collected.finished)
    more = f" ({absent} of {len(collected.runs)} runs did not finish)" if absent else ""
    return f"Runs: {runs}{more}. Commit {commit_text(collected)}."


def _sum_text(values: pd.Series) -> str:
    """Four decimals; an unmeasured total is no zero."""
    total = values.sum(min_count=1)
    return "an unmeasured number of" if pd.isna(total) else f"{total:.4f}"


def facts(collected: Collected) -> dict[str, Any]:
    """What every report says about its runs, as variables for its template.

    Returns:
        ``runs`` and ``finished`` (numbers), ``absent`` (rows of runs that did not finish),
        ``seeds``, ``commit``, ``hardware``, ``incidents`` (kind → number) and ``totals`` (texts:
        hours, kwh, kg of CO₂e; the number of runs that were resumed).
    """
    runs = collected.runs
    return {
        "runs": len(runs),
        "finished": len(collected.finished),
        "absent": runs[runs.status != "finished"].to_dict("records"),
        "seeds": sorted({int(seed) for seed in runs.seed}),
        "commit": commit_text(collected),
        "hardware": "; ".join(sorted({name for name in runs.hardware.dropna() if name}))
        or "unknown",
        "incidents": incident_totals(collected),
        "totals": {
            "hours": f"{runs.wall_time_s.sum() / 3600:.2f}",
            "kwh": _sum_text(runs.energy_kwh),
            "kg": _sum_text(runs.kg_co2e),
            "resumed": int((runs.resumed.fillna(0) > 0).sum()),
        },
    }

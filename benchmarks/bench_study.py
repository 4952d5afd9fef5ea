"""The whole grid of a scale: core-seconds per run, wall time and core utilisation.

Reads the records of a finished grid (it trains nothing itself: the grid takes hours)::

    snakemake m1 m2 m3 --cores 2
    python benchmarks/bench_study.py

Wall time is the time during which at least one run was trained, from the runs' provenance; CPU time
is that of the training and test jobs with all their processes, from Snakemake's benchmark files:
mean load × duration, a lower bound, because a process counts only from its second sample. (Their
column ``cpu_time`` counts a process once for each name that it has had, and Ray's workers change
theirs with every call.)
"""

from datetime import datetime
from pathlib import Path

import common
import pandas as pd

from refblend.files import read_json

SCALE = "cpu"
GOAL_HOURS = 3.0
GOAL_BUSY = 0.85
GOAL_CORE_SECONDS = 40.0
"""Per run of 20 steps, start-up, validation and test included."""


def sessions(runs: Path) -> pd.DataFrame:
    """One row per session of a run: arm, seed, start and end (UTC), cores of the machine."""
    rows = []
    for path in sorted(runs.glob("*/seed_*/provenance.json")):
        record = read_json(path)
        rows += [
            {
                "arm": path.parents[1].name,
                "seed": path.parent.name,
                "start": datetime.fromisoformat(session["start"]),
                "end": datetime.fromisoformat(session["end"]),
                "cores": record["hardware"]["cores"],
            }
            for session in record["sessions"]
            if session.get("end")
        ]
    return pd.DataFrame(rows)


def covered_seconds(spans: pd.DataFrame) -> float:
    """Length of the union of the sessions: pauses between calls of the workflow do not count."""
    total, reached = 0.0, None
    for row in spans.sort_values("start").itertuples():
        start = row.start if reached is None else max(row.start, reached)
        if row.end > start:
            total += (row.end - start).total_seconds()
            reached = row.end
    return total


def cpu_seconds(logs: Path) -> float:
    """CPU seconds of the jobs of a rule, a lower bound."""
    files = sorted(logs.rglob("*.benchmark.tsv"))
    jobs = pd.concat([pd.read_csv(path, sep="\t", na_values=["NA", "-"]) for path in files])
    return float((jobs["mean_load"] / 100 * jobs["s"]).sum())


def main() -> None:
    """Print the table and write ``benchmarks/results/study.json``."""
    spans = sessions(common.ROOT / "runs" / SCALE)
    if spans.empty:
        print(f"Not run: no run in runs/{SCALE}; `snakemake m1 m2 m3 --cores 2` makes them.")
        return
    wall = covered_seconds(spans)
    cpu = sum(cpu_seconds(common.ROOT / "logs" / SCALE / rule) for rule in ("train", "test"))
    cores = int(spans.cores.max())
    busy = cpu / (wall * cores)
    runs = len(spans.drop_duplicates(["arm", "seed"]))
    # Wall time of all cores, idle or not: what a run costs whoever waits for the grid.
    core_seconds = wall * cores / runs
    figures = {
        "runs": runs,
        "core_seconds_per_run": core_seconds,
        "arms": int(spans.arm.nunique()),
        "wall_hours": wall / 3600,
        "cpu_hours": cpu / 3600,
        "cores": cores,
        "cpu_share": busy,
        "goal_cpu_share": GOAL_BUSY,
        "goal_wall_hours": GOAL_HOURS,
    }
    common.show("the grid", list(figures), [list(figures.values())])
    what = f"core-seconds per run of {common.RUN_STEPS} steps"
    common.record("study", what, core_seconds, GOAL_CORE_SECONDS, figures)


if __name__ == "__main__":
    main()

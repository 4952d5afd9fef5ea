"""The whole grid of a scale: wall hours and core-seconds per run, by processor.

`python benchmarks/bench_study.py` reads the records of the runs in `runs/cpu`, or, where there is
none, of the committed ones, unpacked for the moment. It trains nothing itself, since the grid takes
hours. The committed runs are those of the design and some that a later design no longer has: what
they cost counts all the same.

Wall time is the time during which at least one run was trained, from the runs' provenance; it
counts for all cores of the machine, idle or not: what a run costs whoever waits for the grid. Tests
ran in the same hours, beside other runs, and so did some of the development, which lengthens both.
"""

import tempfile
from datetime import datetime
from pathlib import Path

import common
import pandas as pd

from refblend.files import read_json
from refblend.study.runs.pack import unpack_runs

SCALE = "cpu"
GOAL_CORE_SECONDS = 40.0
"""Per run of 20 steps, start-up, validation and test included."""


def sessions(runs: Path) -> pd.DataFrame:
    """One row per session of a run: arm, seed, start and end (UTC), processor and its cores."""
    rows = []
    for path in sorted(runs.glob("*/seed_*/provenance.json")):
        record = read_json(path)
        rows += [
            {
                "arm": path.parents[1].name,
                "seed": path.parent.name,
                "start": datetime.fromisoformat(session["start"]),
                "end": datetime.fromisoformat(session["end"]),
                "cpu": record["hardware"]["cpu"],
                "cores": record["hardware"]["cores"],
            }
            for session in record["sessions"]
            if session.get("end")
        ]
    return pd.DataFrame(rows)


def committed_sessions() -> pd.DataFrame:
    """The sessions of the committed runs."""
    with tempfile.TemporaryDirectory() as name:
        for pack in sorted((common.ROOT / "results" / SCALE / "pieces").glob("[0-9]*.tar.xz")):
            unpack_runs(pack, Path(name))
        return sessions(Path(name))


def covered_seconds(spans: pd.DataFrame) -> float:
    """Length of the union of the sessions: pauses between calls of the workflow do not count."""
    total, reached = 0.0, None
    for row in spans.sort_values("start").itertuples():
        start = row.start if reached is None else max(row.start, reached)
        if row.end > start:
            total += (row.end - start).total_seconds()
            reached = row.end
    return total


def cost(spans: pd.DataFrame) -> dict[str, float]:
    """Runs, arms, wall hours and core-seconds per run of some sessions."""
    runs = len(spans.drop_duplicates(["arm", "seed"]))
    wall = covered_seconds(spans)
    return {
        "runs": runs,
        "arms": int(spans.arm.nunique()),
        "wall_hours": wall / 3600,
        "core_seconds_per_run": wall * int(spans.cores.max()) / runs,
    }


def main() -> None:
    """Print the table and write ``benchmarks/results/study.json``."""
    spans = sessions(common.ROOT / "runs" / SCALE)
    if spans.empty:
        spans = committed_sessions()
    figures = {str(cpu): cost(own) for cpu, own in spans.groupby("cpu")}
    figures["all"] = cost(spans)
    columns = list(figures["all"])
    common.show(
        "the grid", ["processor", *columns], [[cpu, *row.values()] for cpu, row in figures.items()]
    )
    what = f"core-seconds per run of {common.RUN_STEPS} steps"
    seconds = figures["all"]["core_seconds_per_run"]
    common.record("study", what, seconds, GOAL_CORE_SECONDS, figures)


if __name__ == "__main__":
    main()

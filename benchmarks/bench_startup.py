"""Start-up: from the command to the first training step, and its share of a run at scale cpu.

`python benchmarks/bench_startup.py` starts `refblend train` at scale cpu, with the judge and
without, in turn, and lets each run do a few steps. The judge is random; the actor is that of the
committed runs, so that its responses, and with them the steps, are as long as theirs.
Validation before training is left out, because it is work that the user asked for. The share is
relative to start-up + 20 × (median step), for a run alone and for three seeds that share one
start-up, as in the study; validation and checkpoints of a real run make it smaller.
Wall time depends on other load; the CPU time of all processes is more robust.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import common

STEPS = 4
"""The first is left out of the step's cost (caches and lazy imports), and so is the last."""
SEEDS = 3
"""Fewest runs of a job of the study; they share the start-up."""
REPEATS = 2
CASES = {
    "with judge": "algorithm.ref_quality_score.enable=true",
    "without judge": "algorithm.ref_quality_score.enable=false",
}
STAGES = {
    "imported": "imports and configuration",
    "checked": "data and model checks, records",
    "cluster": "Ray",
    "workers": "workers: imports, models, engines",
    "step": "trackers, first loads",
}
GOAL_SECONDS, GOAL_SHARE = 12.0, 0.15


def start(folder: Path, name: str, setting: str) -> dict[str, Any]:
    """One run: wall and CPU seconds to the first step, by stage and kind, and per step."""
    run = folder / name
    configs = [argument for path in common.CONFIGS for argument in ("--config", str(path))]
    here = common.ROOT / "benchmarks"
    paths = [str(here), os.environ.get("PYTHONPATH", "")]
    marks_file = folder / f"{name}.jsonl"
    command = [sys.executable, str(here / "startup_probe.py"), str(marks_file), "train", *configs]
    begin = time.time()
    subprocess.run(
        [*command, *common.run_overrides(folder, run, STEPS), setting],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
        cwd=common.ROOT,
        stdout=subprocess.DEVNULL,
        check=True,
    )
    marks = [json.loads(line) for line in marks_file.read_text().splitlines()]
    first = {mark["mark"]: mark for mark in reversed(marks)}
    steps = [mark for mark in marks if mark["mark"] == "step"]
    times = [begin, *(first[stage]["time"] for stage in STAGES)]
    pairs = list(pairwise(steps))[1:]
    return {
        "wall_seconds": first["step"]["time"] - begin,
        "wall_seconds_by_stage": dict(
            zip(STAGES, (b - a for a, b in pairwise(times)), strict=True)
        ),
        "cpu_seconds": total(first["step"]),
        "cpu_seconds_by_kind": first["step"]["cpu_seconds"],
        "step_wall_seconds": statistics.median(b["time"] - a["time"] for a, b in pairs),
        "step_cpu_seconds": statistics.median(total(b) - total(a) for a, b in pairs),
    }


def total(mark: dict[str, Any]) -> float:
    """CPU seconds of all processes."""
    return sum(mark["cpu_seconds"].values())


def share(run: dict[str, Any], clock: str, seeds: int) -> float:
    """Start-up as a share of consecutive runs at scale cpu."""
    spent = run[f"{clock}_seconds"]
    return spent / (spent + seeds * common.RUN_STEPS * run[f"step_{clock}_seconds"])


def main() -> None:
    runs: dict[str, list[dict[str, Any]]] = {case: [] for case in CASES}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        common.prepare_inputs(folder)
        for repeat in range(REPEATS):
            for number, (case, setting) in enumerate(CASES.items()):
                runs[case].append(start(folder, f"run_{number}_{repeat}", setting))

    def median(case: str, *keys: str) -> float:
        values = []
        for run in runs[case]:
            value: Any = run
            for key in keys:
                value = value.get(key, 0.0)
            values.append(value)
        return statistics.median(values)

    rows: list[list[Any]] = [
        ["wall seconds", *(median(case, "wall_seconds") for case in CASES)],
        ["CPU seconds, all processes", *(median(case, "cpu_seconds") for case in CASES)],
    ]
    for stage, label in STAGES.items():
        rows += [
            [f"wall: {label}", *(median(case, "wall_seconds_by_stage", stage) for case in CASES)]
        ]
    for kind in ("driver", "Ray", "engines", "trainers"):
        rows += [[f"CPU: {kind}", *(median(case, "cpu_seconds_by_kind", kind) for case in CASES)]]
    shares = {
        f"{clock}: share of {seeds} run{'s' * (seeds > 1)} of {common.RUN_STEPS} steps": {
            case: statistics.median(share(run, clock, seeds) for run in runs[case])
            for case in CASES
        }
        for clock in ("wall", "cpu")
        for seeds in (1, SEEDS)
    }
    rows += [[label, *found.values()] for label, found in shares.items()]
    common.show("From the command to the first training step (medians)", ["what", *CASES], rows)
    common.record(
        "startup",
        f"CPU time of the start-up as a share of {SEEDS} cpu runs, as the study trains them",
        shares[f"cpu: share of {SEEDS} runs of {common.RUN_STEPS} steps"]["with judge"],
        GOAL_SHARE,
        {
            "runs": runs,
            "shares": shares,
            "wall_seconds": {case: median(case, "wall_seconds") for case in CASES},
            "wall_goal_seconds": GOAL_SECONDS,
        },
    )


if __name__ == "__main__":
    main()

"""A long run: do memory, file handles or step time grow in any process?

`python benchmarks/soak.py --steps 2000` trains the smallest models of the workflow (scale smoke,
which `make soak` prepares) as a user would: vLLM, judge, blending, KL, TensorBoard, energy, a
validation and a checkpoint every 20th of the run, rollouts dumped. Every few seconds it looks at
the command, the driver, the workers and Ray's processes. The learning rate is so small that the
responses keep their length, so that steps stay comparable. The KV caches are small: memory counts
once it is touched, and the engines use untouched blocks first, so large caches would look like a
leak for hundreds of steps.

Growth is the Theil–Sen slope over the steps after the first tenth, times those steps, in per cent
of the level where it begins; memory is the unique set size (USS). The script fails when the memory
of a process grows beyond the goal, or its handles grow at all.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import common
import psutil
from reliability import growth_rows
from scipy.stats import theilslopes

from refblend.lifecycle.supervision import SUPERVISOR, supervisor_value

GOAL_PERCENT = 5.0
EVERY_S = 5.0
CACHE_MB = 24
"""KV cache of each engine; all its blocks are in use before the first tenth of the run ends."""
POINTS = 40
"""Of each curve in the record."""
RAY = {"raylet": "raylet", "gcs_server": "gcs_server"}


@dataclass(frozen=True)
class Sample:
    """One process at one point in time."""

    step: int
    uss_mib: float
    rss_mib: float
    handles: int
    threads: int


def overrides(run: Path, steps: int) -> list[str]:
    """A short step with everything enabled."""
    scoring = "algorithm.ref_quality_score.scoring"
    often = max(1, steps // 20)
    return [
        f"trainer.default_local_dir={run}",
        f"trainer.total_training_steps={steps}",
        f"trainer.save_freq={often}",
        "trainer.max_ckpt_to_keep=2",
        f"trainer.test_freq={often}",
        f"trainer.rollout_dump_freq={max(1, often // 10)}",
        "trainer.energy=true",
        "trainer.logger=[console,tensorboard]",
        "actor_rollout_ref.actor.optim.lr=1e-7",
        "actor_rollout_ref.rollout.n=4",
        f"actor_rollout_ref.rollout.kv_cache_memory_mb={CACHE_MB}",
        f"{scoring}.kv_cache_memory_mb={CACHE_MB}",
        "data.train_batch_size=4",
        "data.max_response_length=24",
        "data.max_val_samples=8",
        "reward.custom_reward_function=length_reward:reward",
        f"{scoring}.max_invalid_rate=1.0",
    ]


def role(process: psutil.Process) -> str | None:
    """The role of a process of the run; None for short-lived helpers."""
    words = process.cmdline() or [""]
    if words[0].startswith("ray::") and "Worker" in words[0]:
        return words[0].removeprefix("ray::").partition(".")[0].partition("(")[0].split()[0]
    if process.name() in RAY:
        return RAY[process.name()]
    known = ("log_monitor", "monitor.py", "dashboard_agent", "runtime_env", "agent")
    script = next((word for word in words if any(k in word for k in known)), None)
    return Path(script).stem if script else None


def look(command: psutil.Process, step: int) -> dict[str, Sample]:
    """All processes of the run by role and number."""
    found = {}
    # The command's only child is the driver (:mod:`refblend.lifecycle.guardian`).
    near = {command.pid: "command", **{child.pid: "driver" for child in command.children()}}
    for process in (command, *command.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            name = near.get(process.pid) or role(process)
            if name is None:
                continue
            with process.oneshot():
                memory = process.memory_full_info()
                found[f"{name} {process.pid}"] = Sample(
                    step,
                    memory.uss / 2**20,
                    memory.rss / 2**20,
                    process.num_fds(),
                    process.num_threads(),
                )
    return found


def watch(
    process: "subprocess.Popen[bytes]", metrics: Path
) -> tuple[dict[str, list[Sample]], list[tuple[int, float]]]:
    """Samples of each process, and MiB of /dev/shm by step, until the run ends."""
    samples: dict[str, list[Sample]] = defaultdict(list)
    shared = []
    command = psutil.Process(process.pid)
    while process.poll() is None:
        step = len(metrics.read_bytes().splitlines()) - 1 if metrics.exists() else -1
        if step > 0:
            with contextlib.suppress(psutil.NoSuchProcess):
                for name, sample in look(command, step).items():
                    samples[name].append(sample)
                shared.append((step, psutil.disk_usage("/dev/shm").used / 2**20))
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(EVERY_S)
    return samples, shared


def trend(steps: list[int], values: list[float], total: int) -> dict[str, float]:
    """Slope per 1,000 steps, its 95 % interval, and growth in per cent after the first tenth."""
    late = [(s, v) for s, v in zip(steps, values, strict=True) if s >= total / 10]
    fit = theilslopes([v for _, v in late], [s for s, _ in late], 0.95)
    begin = fit.intercept + fit.slope * total / 10
    return {
        "per_1000_steps": fit.slope * 1000,
        "low": fit.low_slope * 1000,
        "high": fit.high_slope * 1000,
        "begin": begin,
        "growth_percent": 100 * fit.slope * 0.9 * total / begin if begin else 0.0,
    }


def median_between(pairs: list[tuple[int, float]], total: int, begin: float, end: float) -> float:
    """Median of the values whose step lies between two shares of the run."""
    return statistics.median(v for s, v in pairs if begin * total < s <= end * total)


def drift(records: list[dict[str, Any]], key: str) -> float:
    """Median of the last tenth over that of the second tenth."""
    total = records[-1]["step"]
    pairs = [(r["step"], r[key]) for r in records if key in r]
    return median_between(pairs, total, 0.9, 1) / median_between(pairs, total, 0.1, 0.2)


def curve(values: list[Any]) -> list[Any]:
    """A few of many points, for the record."""
    return values[:: max(1, len(values) // POINTS)]


def of_process(samples: list[Sample], total: int) -> dict[str, Any]:
    """Everything that is reported of one process."""
    steps = [s.step for s in samples]
    handles = [(s.step, float(s.handles)) for s in samples]
    early, late = (median_between(handles, total, *part) for part in ((0.1, 0.2), (0.9, 1)))
    return {
        "uss_mib": trend(steps, [s.uss_mib for s in samples], total),
        "rss_mib": trend(steps, [s.rss_mib for s in samples], total),
        "handles": {"early": early, "late": late, "most": max(h for _, h in handles)},
        "threads": {"early": samples[0].threads, "late": samples[-1].threads},
        "curve": {
            "step": curve(steps),
            "uss_mib": curve([round(s.uss_mib, 2) for s in samples]),
            "handles": curve([s.handles for s in samples]),
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=2000)
    total = parser.parse_args().steps
    configs = [common.ROOT / "params" / "ppo.yaml", common.ROOT / "params" / "scale" / "smoke.yaml"]
    arguments = [word for path in configs for word in ("--config", str(path))]
    with tempfile.TemporaryDirectory() as name:
        run = Path(name) / "run"
        paths = [str(common.ROOT / "benchmarks"), os.environ.get("PYTHONPATH", "")]
        with open(Path(name) / "output.txt", "wb") as output:
            began = time.monotonic()
            process = subprocess.Popen(
                [
                    Path(sys.executable).with_name("refblend"),
                    "train",
                    *arguments,
                    *overrides(run, total),
                ],
                cwd=common.ROOT,
                # The run ends with this script, however that ends.
                env=os.environ
                | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
                | {SUPERVISOR: supervisor_value(run)},
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            samples, shared = watch(process, run / "metrics.jsonl")
        seconds = time.monotonic() - began
        if process.returncode:
            sys.exit((Path(name) / "output.txt").read_text()[-4000:])
        lines = (run / "metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    lasting = {
        n: s for n, s in samples.items() if s[0].step <= total / 10 < 0.9 * total < s[-1].step
    }
    figures = {name: of_process(s, total) for name, s in sorted(lasting.items())}
    report(total, seconds, figures, records, shared)


def report(
    total: int,
    seconds: float,
    figures: dict[str, Any],
    records: list[dict[str, Any]],
    shared: list[tuple[int, float]],
) -> None:
    """Print the table, write the record, and fail if something grows."""
    columns = ["process", "USS MiB", "MiB per 1,000 steps [95 %]", "growth", "handles"]
    common.show(f"{total} steps", columns, growth_rows(figures))
    training = records[1:]
    drifts = {
        "step seconds": drift(training, "timing_s/step"),
        "tokens a step": drift(training, "perf/total_num_tokens"),
        "save_checkpoint seconds": drift(training, "timing_s/save_checkpoint"),
        "testing seconds": drift(training, "timing_s/testing"),
    }
    table = [[name, f"{value:.3f}"] for name, value in drifts.items()]
    common.show("last tenth over second tenth", ["median of", "ratio"], table)
    incidents = {
        name.removeprefix("incidents/"): sum(r[name] for r in training)
        for name in training[-1]
        if name.startswith("incidents/")
    }
    common.record(
        "soak",
        f"largest growth of a process's memory over {total} steps, in per cent",
        max(figure["uss_mib"]["growth_percent"] for figure in figures.values()),
        GOAL_PERCENT,
        {
            "steps": total,
            "seconds": seconds,
            "processes": figures,
            "drift": drifts,
            "shared_memory_mib": {
                **trend([s for s, _ in shared], [v for _, v in shared], total),
                "curve": curve(shared),
            },
            "incidents": incidents,
        },
    )
    growing = [
        f"{name}: memory" for name, f in figures.items() if over(f["uss_mib"]["growth_percent"])
    ] + [
        f"{n}: handles" for n, f in figures.items() if f["handles"]["late"] > f["handles"]["early"]
    ]
    if growing:
        sys.exit("grows: " + ", ".join(growing))


def over(percent: float) -> bool:
    """Whether a growth is more than the goal allows."""
    return percent > GOAL_PERCENT


if __name__ == "__main__":
    main()

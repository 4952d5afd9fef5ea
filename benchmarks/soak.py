"""A long run: do memory, file handles or step time grow in any process?

`python benchmarks/soak.py --steps 2000` trains the smallest models of the workflow (scale smoke,
which `make soak` prepares) as a user would: vLLM, judge, blending, KL, TensorBoard, energy, a
validation and a checkpoint every 20th of the run, rollouts dumped. Every few seconds it looks at
the command, the driver, the workers and Ray's processes. The learning rate is so small that the
responses keep their length, so that steps stay comparable. The KV caches are small: memory counts
once it is touched, so large caches would look like a leak for hundreds of steps.

Growth is the Theil–Sen slope over the steps after the first tenth, times those steps, in per cent
of the level where it begins; memory is the unique set size (USS). The script fails when the memory
of a process grows beyond the goal, or its handles grow at all.
"""

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import common
import psutil
import runs
from scipy.stats import theilslopes

GOAL_PERCENT = 5.0
EVERY_S = 5.0
CACHE_MB = 24
"""KV cache of each engine; all its blocks are in use before the first tenth of the run ends."""
CONFIGS = [common.ROOT / "params" / "ppo.yaml", common.ROOT / "params" / "scale" / "smoke.yaml"]
OTHERS = ("raylet", "gcs_server", "log_monitor", "monitor.py", "dashboard_agent", "runtime_env")
"""Ray's processes that are watched beside the workers."""

Series = list[tuple[int, float]]
"""A value by training step."""


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


def role(process: psutil.Process, command: psutil.Process) -> str | None:
    """The role of a process of the run; None for short-lived helpers."""
    if process == command:
        return "command"
    if process.ppid() == command.pid:
        return "driver"
    words = process.cmdline() or [""]
    if words[0].startswith("ray::") and "Worker" in words[0]:
        return words[0].removeprefix("ray::").partition(".")[0].split()[0]
    return next((name for name in OTHERS if any(name in word for word in words)), None)


def watch(process: "subprocess.Popen[bytes]", metrics: Path) -> dict[str, dict[str, Series]]:
    """USS in MiB and handles of each process, by step, until the run ends."""
    found: dict[str, dict[str, Series]] = defaultdict(lambda: {"uss_mib": [], "handles": []})
    command = psutil.Process(process.pid)
    while process.poll() is None:
        step = len(metrics.read_bytes().splitlines()) - 1 if metrics.exists() else -1
        with contextlib.suppress(psutil.NoSuchProcess):
            for each in [command, *command.children(recursive=True)] if step > 0 else []:
                with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                    if name := role(each, command):
                        own = found[f"{name} {each.pid}"]
                        own["uss_mib"].append((step, each.memory_full_info().uss / 2**20))
                        own["handles"].append((step, float(each.num_fds())))
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(EVERY_S)
    return found


def trend(series: Series, total: int) -> dict[str, float]:
    """Slope per 1,000 steps, its 95 % interval, and growth in per cent after the first tenth."""
    late = [(step, value) for step, value in series if step >= total / 10]
    fit = theilslopes([value for _, value in late], [step for step, _ in late], 0.95)
    begin = fit.intercept + fit.slope * total / 10
    return {
        "per_1000_steps": fit.slope * 1000,
        "low": fit.low_slope * 1000,
        "high": fit.high_slope * 1000,
        "begin": begin,
        "growth_percent": 100 * fit.slope * 0.9 * total / begin if begin else 0.0,
    }


def early_and_late(series: Series, total: int) -> tuple[float, float]:
    """Medians of the second and of the last tenth of the run."""
    early = [value for step, value in series if 0.1 * total < step <= 0.2 * total]
    late = [value for step, value in series if 0.9 * total < step]
    return statistics.median(early), statistics.median(late)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=2000)
    total = parser.parse_args().steps
    with tempfile.TemporaryDirectory() as name:
        run = Path(name) / "run"
        began = time.monotonic()
        process = runs.start_training(overrides(run, total), CONFIGS)
        watched = watch(process, run / "metrics.jsonl")
        seconds = time.monotonic() - began
        if process.returncode:
            raise SystemExit(f"the training run failed with status {process.returncode}")
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    figures: dict[str, dict[str, Any]] = {}
    for name, own in sorted(watched.items()):
        steps = [step for step, _ in own["uss_mib"]]
        if steps[0] <= total / 10 < 0.9 * total < steps[-1]:
            early, late = early_and_late(own["handles"], total)
            memory = trend(own["uss_mib"], total)
            figures[name] = {"uss_mib": memory, "handles": {"early": early, "late": late}}
    drift = {}
    for key in ("timing_s/step", "timing_s/save_checkpoint", "timing_s/testing"):
        early, late = early_and_late([(r["step"], r[key]) for r in lines[1:] if key in r], total)
        drift[key] = late / early
    report(total, seconds, figures, drift)


def report(
    total: int, seconds: float, figures: dict[str, dict[str, Any]], drift: dict[str, float]
) -> None:
    """Print the tables, write the record, and fail if something grows."""
    rows = [
        [
            name,
            f"{of['uss_mib']['begin']:.1f}",
            "{per_1000_steps:+.2f} [{low:+.2f}, {high:+.2f}]".format(**of["uss_mib"]),
            f"{of['uss_mib']['growth_percent']:+.1f} %",
            f"{of['handles']['early']:.0f} → {of['handles']['late']:.0f}",
        ]
        for name, of in figures.items()
    ]
    columns = ["process", "USS MiB", "MiB per 1,000 steps [95 %]", "growth", "handles"]
    common.show(f"{total} steps in {seconds / 60:.0f} minutes", columns, rows)
    common.show("last tenth over second tenth", ["median of", "ratio"], [*map(list, drift.items())])
    common.record(
        "soak",
        f"largest growth of a process's memory over {total} steps, in per cent",
        max(figure["uss_mib"]["growth_percent"] for figure in figures.values()),
        GOAL_PERCENT,
        {"steps": total, "seconds": seconds, "processes": figures, "drift": drift},
    )
    growing = [n for n, f in figures.items() if f["uss_mib"]["growth_percent"] > GOAL_PERCENT]
    growing += [n for n, f in figures.items() if f["handles"]["late"] > f["handles"]["early"]]
    if growing:
        sys.exit("grows: " + ", ".join(growing))


if __name__ == "__main__":
    main()

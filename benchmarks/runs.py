"""Runs of `refblend train` that are watched from outside: CPU time of each step, by process."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import common
import psutil

from refblend.config.scoring import SCORING_KEY

JUDGE_TOKENS = 28
"""What a trained judge writes for one response; a random one writes until it is stopped."""
WARM = 2
"""First steps that are left out: caches and lazy imports."""


def measured_steps(total: int) -> range:
    """Which steps of a run count, from 1: not the last, because validation follows it."""
    return range(WARM + 1, total)


def overrides(folder: Path, steps: int, name: str = "run") -> list[str]:
    """A run of scale cpu on the inputs below ``folder`` that saves nothing but its rollouts.

    Nothing is validated. The judge is random, so any share of invalid scores is accepted; the
    reward is :func:`length_reward.reward`, which a random actor can earn.
    """
    data = folder / "data"
    return [
        f"data.train_files=[{data}/train.parquet]",
        f"data.val_files=[{data}/validation.parquet]",
        f"data.sanity_files=[{data}/sanity.parquet]",
        f"actor_rollout_ref.model.path={folder}/actor",
        f"{SCORING_KEY}.model_path={folder}/judge",
        f"{SCORING_KEY}.max_new_tokens={JUDGE_TOKENS}",
        f"{SCORING_KEY}.max_invalid_rate=1.0",
        f"{SCORING_KEY}.overlap=false",
        "reward.custom_reward_function=length_reward:reward",
        f"trainer.total_training_steps={steps}",
        "trainer.val_before_train=false",
        "trainer.test_freq=-1",
        f"trainer.default_local_dir={folder / name}",
        "actor_rollout_ref.actor.optim.lr=0",
        "trainer.save_freq=0",
        "trainer.rollout_dump_freq=1",
        "trainer.energy=false",
        "trainer.logger=[]",
    ]


def start_training(
    settings: Sequence[str], configs: Sequence[Path] = common.CONFIGS
) -> "subprocess.Popen[bytes]":
    """The run's command, started; it finds the reward of :mod:`length_reward`."""
    layers = [argument for path in configs for argument in ("--config", str(path))]
    paths = [str(common.ROOT / "benchmarks"), os.environ.get("PYTHONPATH", "")]
    return subprocess.Popen(
        [Path(sys.executable).with_name("refblend"), "train", *layers, *settings],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
        stdout=subprocess.DEVNULL,
    )


def peak_gib(process: "subprocess.Popen[Any]") -> float:
    """Largest sum over a process and its descendants until it ends, sampled about 5 × a second."""
    root, peak = psutil.Process(process.pid), 0
    while True:
        held = 0
        for each in [root, *root.children(recursive=True)]:
            try:
                held += each.memory_full_info().pss
            except psutil.Error:  # it has ended
                continue
        peak = max(peak, held)
        try:
            process.communicate(timeout=0.2)
            break
        except subprocess.TimeoutExpired:
            continue
    if process.returncode:
        raise SystemExit(f"{process.args!r} failed with status {process.returncode}")
    return peak / 2**30


def run_training(
    run: Path, settings: Sequence[str], total: int, configs: Sequence[Path] = common.CONFIGS
) -> tuple[list[dict[str, float]], list[dict[str, Any]]]:
    """CPU seconds of each measured step by process, and their lines of ``metrics.jsonl``.

    Args:
        run: the run's directory, as in ``settings``.
        settings: overrides of ``configs``.
        total: training steps.
        configs: the configuration's layers.
    """
    process = start_training(settings, configs)
    metrics = run / "metrics.jsonl"
    marks: list[dict[tuple[int, str], float]] = []
    while process.poll() is None:
        lines = metrics.read_text().splitlines() if metrics.exists() else []
        if len(lines) > len(marks):
            marks += [_cpu_seconds(psutil.Process(process.pid))] * (len(lines) - len(marks))
        time.sleep(0.05)
    if process.returncode:
        raise SystemExit(f"the training run failed with status {process.returncode}")
    spent = [_difference(a, b) for a, b in pairwise(marks)]
    recorded = [json.loads(line) for line in metrics.read_text().splitlines()]
    measured = measured_steps(total)
    return [spent[step - 2] for step in measured], [recorded[step - 1] for step in measured]


def rollouts(run: Path, step: int) -> list[dict[str, Any]]:
    """What a step sampled, one line per response."""
    text = (run / "rollouts" / f"{step}.jsonl").read_text()
    # Not splitlines(): a response may hold other line separators, such as U+2028.
    return [json.loads(line) for line in text.split("\n") if line]


def _cpu_seconds(root: psutil.Process) -> dict[tuple[int, str], float]:
    """CPU time of a process and its living descendants, by process id and name."""
    found: dict[tuple[int, str], float] = {}
    for process in [root, *root.children(recursive=True)]:
        try:
            title, times = process.cmdline()[0], process.cpu_times()
            parent = process.ppid()
        except (psutil.NoSuchProcess, IndexError):
            continue
        name = title.split(".")[0] if title.startswith("ray::") else process.name()
        # The command and its child, which trains.
        name = "driver" if root.pid in (process.pid, parent) else name
        found[process.pid, name] = times.user + times.system
    return found


def _difference(
    before: dict[tuple[int, str], float], after: dict[tuple[int, str], float]
) -> dict[str, float]:
    start = {pid: spent for (pid, _), spent in before.items()}
    found: dict[str, float] = {}
    for (pid, name), spent in after.items():
        found[name] = found.get(name, 0.0) + spent - start.get(pid, 0.0)
    return found

"""``refblend`` with marks: wall clock and CPU time at the beginning of each stage of a start.

``python startup_probe.py MARKS train …`` runs the same command line and appends one JSON line per
mark to the file MARKS. CPU time covers all descendants, including those that have ended, by kind:
driver, Ray, engines, trainers.
"""

import functools
import json
import sys
import time
from collections.abc import Callable
from typing import Any

from refblend import runtime

runtime.configure_process(1)  # as `refblend train` does before it imports torch

import psutil

from refblend.cli.main import run
from refblend.trainer import launch, recovery
from refblend.trainer.ray_trainer import RayPPOTrainer
from refblend.workers.worker_set import WorkerSet

KINDS = {
    "ray::RolloutWorker": "engines",
    "ray::JudgeWorker": "engines",
    "ray::ActorWorker": "trainers",
    "ray::ReferenceWorker": "trainers",
    "ray::CriticWorker": "trainers",
}


def add_cpu_seconds(process: psutil.Process, kind: str, found: dict[str, float]) -> None:
    """Add a process and its descendants; a worker's children count as the worker's kind."""
    try:
        title = next(iter(process.cmdline()), "").split(".")[0]
        children, times = process.children(), process.cpu_times()
    except psutil.NoSuchProcess:
        return
    kind = KINDS.get(title, kind)
    spent = times.user + times.system + times.children_user + times.children_system
    found[kind] = found.get(kind, 0.0) + spent
    for child in children:
        add_cpu_seconds(child, "Ray" if kind == "driver" else kind, found)


def marked(path: str, name: str, work: Callable[..., Any]) -> Callable[..., Any]:
    """``work`` with a mark before each call."""

    @functools.wraps(work)
    def call(*args: Any, **kwargs: Any) -> Any:
        found: dict[str, float] = {}
        wall = time.time()
        add_cpu_seconds(psutil.Process(), "driver", found)
        with open(path, "a") as file:
            print(json.dumps({"mark": name, "time": wall, "cpu_seconds": found}), file=file)
        return work(*args, **kwargs)

    return call


if __name__ == "__main__":
    marks = sys.argv.pop(1)
    launch.train = marked(marks, "imported", launch.train)
    recovery.train_with_recovery = marked(marks, "checked", recovery.train_with_recovery)
    WorkerSet.start = staticmethod(marked(marks, "cluster", WorkerSet.start))  # type: ignore[method-assign]
    RayPPOTrainer.fit = marked(marks, "workers", RayPPOTrainer.fit)  # type: ignore[method-assign]
    RayPPOTrainer.train_step = marked(marks, "step", RayPPOTrainer.train_step)  # type: ignore[method-assign]
    run()

"""Memory by role: a process whose title Ray set, one below it, and the driver."""

import os
import subprocess
import sys

import psutil
import pytest

from refblend.trainer import step_metrics
from refblend.trainer.step_metrics import memory_metrics

SLEEP = "import time; x = bytearray({} * 2**20); print('up', flush=True); time.sleep(60)"


def test_every_process_counts_for_its_role(monkeypatch: pytest.MonkeyPatch) -> None:
    child = f"import subprocess; subprocess.run([{sys.executable!r}, '-c', {SLEEP.format(120)!r}])"
    worker = subprocess.Popen(
        ["ray::RolloutWorker.call", "-c", child], executable=sys.executable, stdout=subprocess.PIPE
    )
    try:
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"up\n"
        below = psutil.Process(worker.pid).children()[0].pid
        held = {below: 5 * 2**30, os.getpid(): 2**30, 1: 2**30}
        monkeypatch.setattr(step_metrics.torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(step_metrics, "gpu_memory", lambda: (9 * 2**30, held))
        found = memory_metrics()
    finally:
        for process in [*psutil.Process(worker.pid).children(), worker]:
            process.kill()
        worker.wait()
    host = "perf/cpu_memory_used_gb"
    assert found[f"{host}/rollout"] > 120 / 1024
    assert found[host] == pytest.approx(found[f"{host}/rollout"] + found[f"{host}/driver"])
    gpu = "perf/gpu_memory_used_gb"
    assert (found[gpu], found[f"{gpu}/rollout"], found[f"{gpu}/driver"]) == (9.0, 5.0, 1.0)

"""Memory by role: a process whose title Ray set, one below it, and the driver."""

import os
import subprocess
import sys
from types import SimpleNamespace

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


@pytest.mark.parametrize("fails_in", ["nvmlInit", "nvmlDeviceGetHandleByUUID"])
def test_a_driver_that_tells_nothing_costs_only_its_numbers(
    fails_in: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pynvml

    def fail(*_: object) -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    for name in ("nvmlInit", "nvmlDeviceGetHandleByUUID", "nvmlShutdown"):
        monkeypatch.setattr(pynvml, name, fail if name == fails_in else lambda *_: None)
    cuda = step_metrics.torch.cuda
    monkeypatch.setattr(cuda, "is_available", lambda: True)
    monkeypatch.setattr(cuda, "device_count", lambda: 1)
    monkeypatch.setattr(cuda, "get_device_properties", lambda _: SimpleNamespace(uuid="1"))
    found = memory_metrics()
    assert found["perf/cpu_memory_used_gb"] > 0
    assert not [name for name in found if "gpu" in name]

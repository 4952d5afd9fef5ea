"""Leases of pretended GPUs: real processes, real locks."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from refblend.errors import ResourceError
from refblend.lifecycle import devices

JOB = """
import os, sys, time
name, seconds = sys.argv[1:]
begun = time.time()
time.sleep(float(seconds))
with open(name, "a") as file:
    file.write(f"{os.environ['CUDA_VISIBLE_DEVICES']} {begun} {time.time()}\\n")
"""


def start(folder: Path, count: int, seconds: float = 0.3, visible: str = "0,1,2,3"):
    command = [sys.executable, "-m", "refblend.lifecycle.devices", str(count)]
    job = [sys.executable, "-c", JOB, str(folder / "jobs.txt"), str(seconds)]
    environment = os.environ | {devices.VISIBLE: visible, devices.FOLDER: str(folder / "locks")}
    return subprocess.Popen([*command, *job], env=environment, stderr=subprocess.PIPE)


def jobs(folder: Path) -> list[tuple[set[str], float, float]]:
    lines = [line.split() for line in (folder / "jobs.txt").read_text().splitlines()]
    return [(set(names.split(",")), float(begun), float(ended)) for names, begun, ended in lines]


def test_eight_jobs_on_four_devices_never_share_one(tmp_path):
    started = [start(tmp_path, 1 + number % 2) for number in range(8)]
    assert [process.wait(60) for process in started] == [0] * 8
    found = jobs(tmp_path)
    assert sorted(len(names) for names, _, _ in found) == [1] * 4 + [2] * 4
    for number, (names, begun, ended) in enumerate(found):
        for others, from_, to in found[:number]:
            assert not names & others or ended <= from_ or to <= begun


def test_a_killed_job_frees_its_device(tmp_path):
    holder = start(tmp_path, 1, seconds=600, visible="5")
    waiting = None
    try:
        locks = tmp_path / "locks"
        while not locks.is_dir() or not list(locks.glob("*.lock")):
            time.sleep(0.05)
        time.sleep(0.5)
        waiting = start(tmp_path, 1, seconds=0, visible="5")
        assert b"waiting for 1 of the GPUs 5" in waiting.stderr.readline()
        holder.send_signal(signal.SIGKILL)
        assert waiting.wait(30) == 0
        assert [names for names, _, _ in jobs(tmp_path)] == [{"5"}]
    finally:
        for process in filter(None, (holder, waiting)):
            process.kill()
            process.wait()


def test_more_than_are_visible_are_refused(monkeypatch):
    monkeypatch.setenv(devices.VISIBLE, "2,3")
    with pytest.raises(ResourceError, match="needs 3 GPUs and can see 2"):
        devices.lease(3)


@pytest.mark.parametrize(("named", "seen"), [("", []), ("-1", []), ("1, GPU-ab", ["1", "GPU-ab"])])
def test_the_callers_devices_are_respected(monkeypatch, named, seen):
    monkeypatch.setenv(devices.VISIBLE, named)
    assert devices.visible_devices() == seen


@pytest.fixture
def machine(monkeypatch) -> dict[str, float]:
    """Pretended GPUs of 24 and 80 GiB, and what is in use there."""
    sizes, used = {"GPU-a1": 24, "GPU-b2": 80}, {"GPU-a1": 0.1, "GPU-b2": 0.1}
    names = list(sizes)
    for what, answer in {
        "Init": lambda: None,
        "Shutdown": lambda: None,
        "DeviceGetCount": lambda: 2,
        "DeviceGetHandleByIndex": lambda number: names[number],
        "DeviceGetUUID": lambda name: name,
        "DeviceGetMemoryInfo": lambda name: SimpleNamespace(
            total=sizes[name] * 2**30, used=used[name] * 2**30
        ),
    }.items():
        monkeypatch.setattr(devices.pynvml, f"nvml{what}", answer)
    return used


@pytest.mark.parametrize(
    ("named", "sizes"),
    [("1", [80]), ("0", [24]), ("GPU-b", [80]), ("MIG-c", [24]), ("1,0", [24, 80]), ("", [])],
)
def test_sizes_are_those_of_the_visible_devices(machine, monkeypatch, named, sizes):
    monkeypatch.setenv(devices.VISIBLE, named)
    assert devices.device_sizes() == [size * 2**30 for size in sizes]


def test_a_lease_waits_for_the_memory_of_the_job_before(machine, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv(devices.VISIBLE, "GPU-b2")
    monkeypatch.setenv(devices.FOLDER, str(tmp_path))
    machine["GPU-b2"] = 60
    monkeypatch.setattr(devices.time, "sleep", lambda s: machine.update({"GPU-b2": 0.1}))
    assert devices.lease(1) == ["GPU-b2"]
    assert capsys.readouterr().err == "waiting for memory of GPU GPU-b2\n"


def test_a_command_without_gpus_runs_as_it_is():
    command = [sys.executable, "-m", "refblend.lifecycle.devices", "0", "echo", "ran"]
    assert subprocess.check_output(command, text=True) == "ran\n"

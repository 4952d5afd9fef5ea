"""A guarded process: its end is passed on; one that is ended from outside is reported."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

HEAD = """
import os, pathlib, signal, subprocess, sys, time
from refblend.lifecycle import guardian
from refblend.errors import WorkerError
try:
    guardian.guard()
except WorkerError as error:
    print(error, flush=True)
    sys.exit(error.exit_status)
folder = pathlib.Path(os.environ["TMPDIR"], f"refblend-ray-{guardian.folders._mark}")
"""


def start(body: str, folder: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", HEAD + body],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"TMPDIR": str(folder)},
    )


def end(process: "subprocess.Popen[str]") -> tuple[int, str]:
    output, _ = process.communicate(timeout=60)
    return process.returncode, output


@pytest.mark.parametrize(
    ("body", "status", "output"),
    [
        ("print('done')", 0, "done\n"),
        ("sys.exit(143)", 143, ""),
        ("raise KeyError('a defect')", 1, "KeyError: 'a defect'\n"),
        # What refblend.lifecycle.stalls does: it has told its reason itself, and leaves its folder.
        ("folder.mkdir(); print('told', flush=True); os._exit(4)", 4, "told\n"),
    ],
)
def test_the_child_s_own_end_is_the_parent_s(tmp_path, body, status, output):
    found, told = end(start(body, tmp_path))
    assert found == status
    assert told.count(output) == 1 if "defect" in output else told == output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("last", "cause"),
    [
        ("os._exit(1)", "Ray, whose raylet is gone, ended"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "signal SIGKILL ended"),
    ],
)
def test_an_end_from_outside_is_told_and_cleaned_up(tmp_path, last, cause):
    body = f"""
folder.mkdir()
stopped = [sys.executable, "-c", "import time; time.sleep(600)", str(folder)]
child = subprocess.Popen(stopped, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
child.send_signal(signal.SIGSTOP)
print(child.pid, flush=True)
{last}
"""
    other = tmp_path / "refblend-ray-1-x"
    other.mkdir()
    status, output = end(start(body, tmp_path))
    pid, message = output.splitlines()
    assert status == 4
    assert message.startswith(f"{cause} the training process. Call the same command again")
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(int(pid)).wait(10)
    assert not psutil.pid_exists(int(pid))
    assert list(tmp_path.iterdir()) == [other]


WAIT = """
def stop(signum, frame):
    # Not print(): the signal may come before the print() of the process number has returned.
    os.write(1, f"got {signal.Signals(signum).name}\\n".encode())
    sys.exit(128 + signum)
for name in ("SIGTERM", "SIGINT", "SIGHUP"):
    signal.signal(getattr(signal, name), stop)
print(os.getpid(), flush=True)
# Python acts on signals between two calls: one just before a long sleep would wait for its end.
while True:
    time.sleep(0.05)
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_signals_are_passed_on(tmp_path, name):
    process = start(WAIT, tmp_path)
    process.stdout.readline()
    number = getattr(signal, name)
    process.send_signal(number)
    assert end(process) == (128 + number, f"got {name}\n")


def test_a_signal_before_the_child_is_ready_keeps_its_meaning(tmp_path):
    process = start("print(flush=True); time.sleep(600)", tmp_path)
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    assert end(process) == (128 + signal.SIGTERM, "")


def test_the_child_does_not_outlive_its_parent(tmp_path):
    process = start(WAIT, tmp_path)
    child = psutil.Process(int(process.stdout.readline()))
    process.kill()
    process.wait(10)
    deadline = time.monotonic() + 10
    while child.is_running() and child.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.05)

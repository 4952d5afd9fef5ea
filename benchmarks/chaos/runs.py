"""Runs of ``refblend train`` at scale smoke, and what they leave behind on the machine."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from refblend.lifecycle.folders import folders_of
from refblend.lifecycle.guardian import cluster_processes
from refblend.trainer.checkpoint import find_damage
from refblend.trainer.tracking import TIMING_PREFIXES

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 30
"""``trainer.worker_timeout_s``: a stopped worker is given up after this time."""
HANG_S = 400
"""A call that takes longer hangs; it takes some 30 s undisturbed."""
STOP_S = 30
"""Within this time SIGTERM ends a run, with a checkpoint."""


@dataclass(frozen=True)
class Ended:
    """How a call of ``refblend train`` ended."""

    status: int
    output: str
    seconds: float


@dataclass(frozen=True)
class Run:
    """A run directory and the calls that train in it."""

    directory: Path

    def start(
        self,
        *more: str,
        before: Sequence[str] = (),
        start_new_session: bool = False,
        **environment: str,
    ) -> "subprocess.Popen[str]":
        """Launch the command, with further arguments and environment variables.

        ``before``: a command that runs it, as ``env`` does.
        """
        command = [
            *before,
            str(Path(sys.executable).with_name("refblend")),
            "train",
            "--config=params/ppo.yaml",
            "--config=params/scale/smoke.yaml",
            f"trainer.worker_timeout_s={DEADLINE_S}",
            f"trainer.default_local_dir={self.directory}",
            "trainer.max_ckpt_to_keep=4",
            "trainer.energy=false",
            *more,
        ]
        return subprocess.Popen(
            command,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
            start_new_session=start_new_session,
        )

    def train(self, *more: str, **environment: str) -> Ended:
        """Call the command and wait for its end."""
        return finish(self.start(*more, **environment))  # type: ignore[arg-type]

    def lines(self) -> int:
        """Lines of ``metrics.jsonl``; 0 without the file."""
        return self.metrics.read_bytes().count(b"\n") if self.metrics.exists() else 0

    @property
    def metrics(self) -> Path:
        return self.directory / "metrics.jsonl"

    def result(self) -> tuple[list[str], bytes]:
        """The recorded steps without timings, and the actor's last weights."""
        weights = self.directory / "checkpoints" / "global_step_4" / "actor" / "model.safetensors"
        return recorded(self.directory), weights.read_bytes()

    def damaged_checkpoints(self) -> list[str]:
        """Damaged checkpoints; there must be none, whatever happened."""
        found = (self.directory / "checkpoints").glob("global_step_*")
        return [f"{path.name}: {damage}" for path in found if (damage := find_damage(path))]


def recorded(directory: Path) -> list[str]:
    """The recorded steps of a run without timings, as text: equal means equal to the digit."""
    lines = (directory / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    steps = (json.loads(line).items() for line in lines)
    kept = ({k: v for k, v in step if not k.startswith(TIMING_PREFIXES)} for step in steps)
    return list(map(json.dumps, kept))


def output_of(process: "subprocess.Popen[str]", hang_s: float = HANG_S) -> str:
    """What a call says until its end; AssertionError where it hangs."""
    try:
        return process.communicate(timeout=hang_s)[0]
    except subprocess.TimeoutExpired:
        raise AssertionError(f"hangs: no end within {hang_s} s") from None
    finally:
        process.kill()


def finish(
    process: "subprocess.Popen[str]", hang_s: float = HANG_S, patience_s: float = 90.0
) -> Ended:
    """Wait for the end of a call of ``refblend train``.

    Raises:
        AssertionError: it hangs, or leaves processes or files of its cluster behind.
    """
    begun = time.monotonic()
    output = output_of(process, hang_s)
    seconds = time.monotonic() - begun
    left = processes_left(process.pid, patience_s)
    assert not left, f"processes are left: {left}\n{output}"
    # A killed process cannot clean up; the next start does.
    killed = process.returncode == -signal.SIGKILL
    folders = folders_of(f"{process.pid}-")
    assert killed or not folders, f"files are left: {folders}\n{output}"
    return Ended(process.returncode, output, seconds)


def processes_left(pid: int, patience_s: float) -> list[str]:
    """Processes of the private cluster of the command ``pid`` that do not end on their own.

    Ray's agents of a killed raylet first tell the head service, and where that has died too they
    try for a minute before they end.
    """
    deadline = time.monotonic() + patience_s
    while True:
        left = [str(process) for process in cluster_processes(f"{pid}-")]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.5)

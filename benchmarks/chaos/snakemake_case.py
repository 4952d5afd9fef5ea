"""Interrupt Snakemake itself while it trains one arm of the smoke study; the next call resumes."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil

from chaos.runs import ROOT, STOP_S, output_of, recorded
from refblend.lifecycle.supervision import SUPERVISOR

MARKER = "runs/smoke/linear/1.trained.json"
RUN = Path("runs/smoke/linear/seed_1")
STOPPED_S = 25
"""How long a stopped Snakemake sleeps."""

_undisturbed = threading.Lock()


def snakemake_case(signal_name: str, delay_s: float, workdir: Path) -> str:
    """Start training with Snakemake in a separate project, interrupt it, and call it again.

    The first case also makes the undisturbed run, in a neighbouring folder.

    Args:
        signal_name: SIGTERM, SIGKILL or SIGSTOP; a stopped Snakemake is woken up later.
        delay_s: seconds after the training process has begun.
        workdir: where the project is made; nothing is there yet.

    Returns:
        "went on", "resumed" (the second call finished the run) or "too late" (it was finished).

    Raises:
        AssertionError: a process is left, the second call fails, or the numbers differ.
    """
    reference = workdir.parent / "snakemake_undisturbed"
    with _undisturbed:
        if not (reference / MARKER).exists():
            _project(reference)
            status = _finish(_start(reference))
            assert status == 0, (reference / "calls.log").read_text()[-2000:]
    _project(workdir)
    log = workdir / "calls.log"
    process = _start(workdir)
    while process.poll() is None and not (workdir / RUN / "identity.json").exists():
        time.sleep(0.05)
    time.sleep(delay_s)
    hit = process.poll() is None
    begun = time.monotonic()
    if hit:
        process.send_signal(getattr(signal, signal_name))
        if signal_name == "SIGSTOP":
            time.sleep(STOPPED_S)
            process.send_signal(signal.SIGCONT)
    status = _finish(process)
    if signal_name == "SIGTERM" and status:
        seconds = time.monotonic() - begun
        # Snakemake itself has to end as well as the run; on a busy machine that takes a while.
        assert seconds < 2 * STOP_S, f"Snakemake took {seconds:.0f} s to stop"
    _wait_for_jobs(workdir)
    outcome = "went on" if hit else "too late"
    if status:
        assert signal_name != "SIGSTOP", log.read_text()[-2000:]
        assert _finish(_start(workdir)) == 0, log.read_text()[-2000:]
        outcome = "resumed"
    assert "Traceback" not in log.read_text(), log.read_text()[-3000:]
    same = recorded(workdir / RUN) == recorded(reference / RUN)
    assert same, "the metrics differ from the undisturbed run's"
    return outcome


def _project(folder: Path) -> None:
    """The study's files, and what ``snakemake prepare`` made at scale smoke."""
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("params", "workflow", "src", "data/smoke", "models/smoke"):
        if not (ROOT / name).is_dir():
            raise FileNotFoundError(f"{name}: call `snakemake prepare --config scale=smoke` first")
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "Snakefile", folder)
    (folder / "profiles").symlink_to("workflow/profiles")


def _start(folder: Path) -> "subprocess.Popen[str]":
    """Call Snakemake; its output goes to a file, since orphans would hold a pipe open."""
    arguments = [MARKER, "--config", "scale=smoke", "--cores", "1", "--allowed-rules", "train"]
    with open(folder / "calls.log", "ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "snakemake", *arguments],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(folder / "src")},
            stdout=log,
            stderr=subprocess.STDOUT,
            text=True,
        )


def _finish(process: "subprocess.Popen[str]") -> int:
    output_of(process)
    return process.returncode


def _wait_for_jobs(folder: Path) -> None:
    """Jobs of a Snakemake that has ended end on their own."""
    deadline = time.monotonic() + STOP_S + 15
    while left := jobs_of(folder):
        assert time.monotonic() < deadline, f"processes are left: {left}"
        time.sleep(0.5)


def jobs_of(folder: Path) -> list[psutil.Process]:
    """Living processes of the jobs of a project."""
    return [
        process
        for process in psutil.process_iter(["environ", "status"])
        if (process.info["environ"] or {}).get(SUPERVISOR, "").partition(":")[2] == str(folder)
        and process.info["status"] != psutil.STATUS_ZOMBIE
    ]

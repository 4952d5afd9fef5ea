"""Snakemake and DVC stopped and killed while jobs run, and called twice; a stand-in trains."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from chaos.snakemake_case import jobs_of

ARMS = ("linear", "off")
MARKERS = [f"runs/smoke/{arm}/1-2.trained.json" for arm in ARMS]
SEEDS = sorted(f"{arm}/{seed}" for arm in ARMS for seed in (1, 2))
CALL = (sys.executable, "-m", "snakemake", *MARKERS, "--config", "scale=smoke", "--cores", "2")
SECONDS = 4
"""That the stand-in takes for a seed."""
PATIENCE_S = 400


def start(
    project: Path, *command: str, seconds: float = SECONDS, log: str = "call.log"
) -> "subprocess.Popen[str]":
    """Start a command in the project; its output goes to a file: orphans would hold a pipe open."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with open(project / log, "w") as stream:
        return subprocess.Popen(
            command,
            cwd=project,
            env=os.environ
            | {"FAKE_SECONDS": str(seconds), "PATH": path, "SHELL": "/bin/bash"}
            | {"GIT_CONFIG_GLOBAL": os.devnull},
            stdout=stream,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )


def run(project: Path, *command: str, seconds: float = 0.01) -> tuple[int, str]:
    """Status and output of a command that is left alone."""
    process = start(project, *command, seconds=seconds, log="whole.log")
    status = process.wait(600)
    return status, (project / "whole.log").read_text()


def lines(project: Path, name: str) -> list[str]:
    record = project / name
    return sorted(record.read_text().split()) if record.exists() else []


def wait_for(condition, what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def send(process: "subprocess.Popen[str]", name: str) -> None:
    """Send a signal; Ctrl-C reaches every process of the terminal."""
    if name == "SIGINT":
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.send_signal(signal.Signals[name])


def in_training(project: Path) -> bool:
    """One seed is trained, and another one is under way."""
    return bool(lines(project, "finished.txt"))


def test_a_second_call_is_refused_and_names_the_first(project: Path) -> None:
    first = start(project, *CALL, seconds=2)
    wait_for(lambda: lines(project, "trained.txt"), "training never began")
    held = jobs_of(project)
    for job in held:
        job.suspend()
    status, output = run(project, *CALL)
    plan, told = run(project, *CALL, "-np")
    for job in held:
        job.resume()
    assert plan == 0
    assert "Another call" not in told, "a dry run waits for nobody"
    assert status != 0
    assert f"Another call of Snakemake works here (process {first.pid})" in output
    assert "Directory cannot be locked" in output
    assert "Traceback" not in output
    assert first.wait(PATIENCE_S) == 0, (project / "call.log").read_text()
    assert lines(project, "finished.txt") == SEEDS, "the first call is unharmed"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGTERM", "SIGKILL", "SIGINT"])
def test_a_stopped_snakemake_leaves_no_job_and_the_next_call_resumes(project, name) -> None:
    process = start(project, *CALL)
    wait_for(lambda: in_training(project), "no seed was trained")
    send(process, name)
    status = process.wait(PATIENCE_S)
    ended = -signal.SIGKILL if name == "SIGKILL" else 1
    assert status == ended, (project / "call.log").read_text()
    said = "Stopped by SIGTERM" in (project / "call.log").read_text()
    assert said == (name == "SIGTERM")
    wait_for(lambda: not jobs_of(project), "jobs are left behind")
    before = lines(project, "finished.txt")
    assert before
    assert before != SEEDS, "nothing was interrupted"
    assert not any((project / marker).exists() for marker in MARKERS)

    status, output = run(project, *CALL)
    assert status == 0, output
    assert ("its lock is removed" in output) == (name == "SIGKILL")
    assert lines(project, "finished.txt") == SEEDS, "each seed once: none lost, none twice"
    assert all((project / marker).exists() for marker in MARKERS)
    assert not list((project / ".snakemake" / "locks").glob("*"))


@pytest.mark.slow
def test_a_call_right_after_the_kill_waits_for_the_orphans(project: Path) -> None:
    process = start(project, *CALL)
    wait_for(lambda: in_training(project), "no seed was trained")
    orphans = jobs_of(project)
    for orphan in orphans:
        orphan.suspend()  # as slow to end as possible
    process.kill()
    process.wait()
    second = start(project, *CALL, seconds=0.01, log="second.log")
    log = project / "second.log"
    wait_for(lambda: "its jobs are ending" in log.read_text(), "it did not see them")
    for orphan in orphans:
        orphan.resume()
    assert second.wait(PATIENCE_S) == 0, log.read_text()
    assert lines(project, "finished.txt") == SEEDS


@pytest.mark.slow
def test_a_suspended_snakemake_goes_on(project: Path) -> None:
    process = start(project, *CALL)
    wait_for(lambda: in_training(project), "no seed was trained")
    process.send_signal(signal.SIGSTOP)
    wait_for(lambda: not jobs_of(project), "the jobs did not end")
    process.send_signal(signal.SIGCONT)
    assert process.wait(PATIENCE_S) == 0, (project / "call.log").read_text()
    assert lines(project, "finished.txt") == SEEDS
    assert lines(project, "trained.txt") == [f"{arm}/1-2" for arm in ARMS]


DVC = """\
stages:
  train:
    cmd: snakemake {markers} --config scale=smoke --cores 2
    deps: [src/refblend, workflow, Snakefile]
    params: [params/workflow.yaml: [scale]]
    outs:
      - runs/smoke: {{cache: false, persist: true}}
"""


@pytest.fixture
def tracked(project: Path, commit: Callable[[], None]) -> Path:
    """The project under git and DVC, its stage as those of the real ``dvc.yaml``."""
    (project / "dvc.yaml").write_text(DVC.format(markers=" ".join(MARKERS)))
    commit()
    return project


MOMENTS = {
    "before training": lambda project: (project / ".snakemake" / "locks").is_dir(),
    "in training": in_training,
    "after training": lambda project: all((project / marker).exists() for marker in MARKERS),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGKILL"])
@pytest.mark.parametrize("moment", MOMENTS)
def test_an_interrupted_dvc_repro_succeeds_the_next_time(tracked, name, moment) -> None:
    process = start(tracked, "dvc", "repro", seconds=2)
    wait_for(lambda: MOMENTS[moment](tracked) or process.poll() is not None, "too late")
    assert process.poll() is None, (tracked / "call.log").read_text()
    send(process, name)
    assert process.wait(PATIENCE_S) != 0, "nothing was interrupted"
    # DVC does not end what it has started: that ends by itself.
    wait_for(lambda: not workflow_processes(tracked), "Snakemake or its jobs are left behind")

    status, output = run(tracked, "dvc", "repro")
    assert status == 0, (tracked / "call.log").read_text() + output
    assert lines(tracked, "finished.txt") == SEEDS, "each seed once: none lost, none twice"
    status, output = run(tracked, "dvc", "status")
    assert "up to date" in output, output


def workflow_processes(project: Path) -> list[psutil.Process]:
    """Everything that works in the project's folder."""
    found = []
    for process in psutil.process_iter(["cwd", "status"]):
        if process.info["cwd"] == str(project) and process.info["status"] != "zombie":
            found.append(process)
    return found

"""Following a process that ends, and the locks of calls that live or were killed."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from refblend.errors import ResourceError
from refblend.lifecycle import supervision

FOLLOWER = """
import sys, time
from refblend.lifecycle import supervision
supervision.follow_supervisor()
print("up", flush=True)
time.sleep(60)
"""
USER = """
import sys, time
from pathlib import Path
from refblend.lifecycle import supervision
supervision.release_stale_locks(Path(sys.argv[1]), print)
print("up", flush=True)
time.sleep(60)
"""


def python(code: str, *arguments: str, **environment: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        text=True,
    )


def lock_of(project: Path) -> Path:
    lock = project / ".snakemake" / "locks" / "0.input.lock"
    lock.parent.mkdir(parents=True)
    lock.write_text("data/a.parquet\n")
    return lock


def test_a_job_ends_when_its_supervisor_is_killed():
    code = f"""
    import os, subprocess, sys, time
    variable = {{"REFBLEND_SUPERVISOR": f"{{os.getpid()}}:/somewhere"}}
    child = subprocess.Popen([sys.executable, "-c", {FOLLOWER!r}], env=os.environ | variable)
    print(child.pid, flush=True)
    time.sleep(60)
    """
    supervisor = python(code)
    job = psutil.Process(int(supervisor.stdout.readline()))
    assert supervisor.stdout.readline() == "up\n"
    supervisor.kill()
    # Nobody has waited for the supervisor yet: it counts as gone all the same.
    deadline = time.monotonic() + 20
    while job.is_running() and job.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    supervisor.wait()


def test_a_job_whose_supervisor_is_gone_already_ends():
    job = python(FOLLOWER, **{supervision.SUPERVISOR: "999999999:/somewhere"})
    assert job.wait(20) == -signal.SIGTERM


def test_locks_of_a_killed_call_are_removed(tmp_path):
    lock, said = lock_of(tmp_path), []
    supervision.release_stale_locks(tmp_path, said.append)
    assert not lock.exists()
    assert len(said) == 1


def test_locks_of_a_living_call_stay_and_it_is_named(tmp_path):
    other = python(USER, str(tmp_path))
    assert other.stdout.readline() == "up\n"
    lock, said = lock_of(tmp_path), []
    supervision.release_stale_locks(tmp_path, said.append)
    assert lock.exists()
    assert len(said) == 1
    assert f"(process {other.pid})" in said[0]
    other.kill()
    other.wait()


def test_orphans_are_waited_for_and_named_when_they_stay(tmp_path):
    lock, said = lock_of(tmp_path), []
    variable = {supervision.SUPERVISOR: f"999999999:{tmp_path}"}
    orphan = python("import time; time.sleep(60)", **variable)
    with pytest.raises(ResourceError, match=f"kill {orphan.pid}"):
        supervision.release_stale_locks(tmp_path, said.append, patience_s=1.0)
    assert lock.exists()
    assert str(orphan.pid) in said[0]
    orphan.kill()
    orphan.wait()


def test_a_job_that_ends_while_it_is_listed_hides_no_other():
    class Ended:
        def name(self) -> str:
            raise psutil.NoSuchProcess(1)

    class Program(Ended):
        def name(self) -> str:
            return "sleep"

    class Shell(Ended):
        def children(self) -> list[Ended]:
            return [Ended(), Program()]

    found = list(supervision.job_processes(Shell()))  # type: ignore[arg-type]
    assert [type(process) for process in found] == [Program]

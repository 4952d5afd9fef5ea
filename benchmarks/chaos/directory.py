"""What a run's directory must survive: another configuration, another code, two Ctrl-C, a move.

Each case interrupts a run, does the one thing that could lose it, and checks that nothing is lost:
the numbers at the end are those of the undisturbed run, or the old run lies complete beside it.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from chaos.plan import Injection
from chaos.runs import HANG_S, ROOT, STOP_S, Run, finish

CHANGED = "algorithm.gamma=0.9"
"""A key that determines numbers."""
CONSTANT = "\n_SEVENTEEN = 17\n"
"""A change of numeric code that alters no number."""


def other_configuration(run: Run, case: Injection, finished: Path) -> str:
    """Kill a run and call it with another configuration: refused, and not a byte is changed."""
    interrupted(run, case)
    before = content(run.directory)
    other = run.train(CHANGED)
    assert other.status == 2, f"status {other.status}: {other.output[-1500:]}"
    assert "algorithm.gamma: 1.0 → 0.9" in other.output, other.output[-1500:]
    assert content(run.directory) == before, "the refused call changed the directory"
    return "refused, then resumed"


def other_code(run: Run, case: Injection, finished: Path) -> str:
    """Kill a run and resume it with other code: a record, or a refusal if strict."""
    interrupted(run, case)
    source = run.directory.parent / "src"
    shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
    changed = source / "refblend" / "ppo" / "losses.py"
    changed.write_text(changed.read_text(encoding="utf-8") + CONSTANT, encoding="utf-8")
    before = content(run.directory)
    strict = run.train("trainer.strict_code=true", PYTHONPATH=str(source))
    assert strict.status == 2, f"strict_code: status {strict.status}: {strict.output[-1500:]}"
    assert content(run.directory) == before, "the refused call changed the directory"
    resumed = run.train(PYTHONPATH=str(source))
    assert resumed.status == 0, resumed.output[-1500:]
    if "finished" not in before.get("summary.json", b"").decode():
        assert b'"source: ' in content(run.directory)["provenance.json"], "it is not recorded"
    shutil.rmtree(source)
    return "resumed with a warning"


def two_interrupts(run: Run, case: Injection, finished: Path) -> str:
    """Press Ctrl-C twice: the second ends the run at once, with its last checkpoint whole."""
    process = run.start(start_new_session=True)
    wait(run, process, case)
    begun, hit = time.monotonic(), process.poll() is None
    for _ in range(2):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
            time.sleep(0.5)
    ended = finish(process)
    seconds = time.monotonic() - begun
    if not hit or ended.status == 0:
        return "too late"
    assert ended.status in (130, -signal.SIGINT), f"status {ended.status}: {ended.output[-1500:]}"
    assert "Traceback" not in ended.output, ended.output[-3000:]
    assert seconds < STOP_S, f"took {seconds:.0f} s"
    return "stopped at once, then resumed"


def moved_aside(run: Run, case: Injection, finished: Path) -> str:
    """Kill a call that moves a finished run aside: the old run is whole in one of two places."""
    shutil.copytree(finished, run.directory)
    before = content(run.directory)
    process = run.start(CHANGED, "--overwrite")
    deadline = time.monotonic() + HANG_S
    while process.poll() is None and not asides(run) and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(case.delay_s / 100)  # at the rename, or just after it
    process.kill()
    finish(process)
    (kept,) = asides(run) or [run.directory]
    assert content(kept) == before, f"the run in {kept} is not whole"
    if kept != run.directory:
        shutil.rmtree(run.directory, ignore_errors=True)
        kept.rename(run.directory)
    return "whole"


CASES: dict[str, Callable[[Run, Injection, Path], str]] = {
    "other configuration": other_configuration,
    "other code": other_code,
    "two Ctrl-C": two_interrupts,
    "moving aside": moved_aside,
}
"""By name; each returns what happened, and leaves a run that its command finishes."""


def interrupted(run: Run, case: Injection) -> None:
    """Start a run and kill its command."""
    process = run.start()
    wait(run, process, case)
    process.kill()
    finish(process)


def wait(run: Run, process: "subprocess.Popen[str]", case: Injection) -> None:
    """Wait for the case's moment, or the run's end."""
    while process.poll() is None and run.lines() < case.after_lines:
        time.sleep(0.02)
    time.sleep(case.delay_s)


def content(folder: Path) -> dict[str, bytes]:
    """Every file of a run but its lock."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in files
        if path.name != ".lock"
    }


def asides(run: Run) -> list[Path]:
    """Runs that were moved aside for this one."""
    return sorted(run.directory.parent.glob(f"{run.directory.name}.*"))

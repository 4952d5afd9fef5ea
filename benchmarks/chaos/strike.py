"""One injection: the fault, its outcome, and the comparison with the undisturbed run."""

import contextlib
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil

from chaos import directory as directory_cases
from chaos.plan import TARGETS, Injection
from chaos.runs import DEADLINE_S, STOP_S, Ended, Run, finish
from chaos.snakemake_case import snakemake_case

Result = tuple[list[str], bytes]


def strike(case: Injection, directory: Path, expected: Result) -> dict[str, Any]:
    """Inject the fault into a fresh run.

    Args:
        case: what to inject, how and when.
        directory: where the run is written; nothing is there yet.
        expected: metrics and weights of the undisturbed run.

    Returns:
        ``outcome``: "went on", "resumed" (it stopped, and the same call went on from there) or "too
        late" (there was nothing left to hit), with ``status`` of the first call and ``message``.

    Raises:
        AssertionError: a promise of docs/explanation/reliability.md is broken.
    """
    if case.target == "Snakemake":
        delay_s = case.delay_s + case.after_lines
        return {"outcome": snakemake_case(case.signal, delay_s, directory.parent / "project")}
    run = Run(directory)
    if case.target in directory_cases.CASES:
        undisturbed = directory.parents[1] / "undisturbed" / directory.name
        outcome = directory_cases.CASES[case.target](run, case, undisturbed)
        record: dict[str, Any] = {"outcome": outcome}
    else:
        record = _struck(case, run)
    damaged = run.damaged_checkpoints()
    assert not damaged, damaged
    if record.get("status") != 0:
        again = run.train()
        assert again.status == 0, f"the next call ends with {again.status}: {again.output[-1500:]}"
    metrics, weights = run.result()
    assert metrics == expected[0], "the metrics differ from the undisturbed run's"
    assert weights == expected[1], "the weights differ from the undisturbed run's"
    return record


def _struck(case: Injection, run: Run) -> dict[str, Any]:
    """Send the signal to a process of the run; how its command ended."""
    process = run.start()
    hit = _hit(case, process, run)
    ended = finish(process)
    record: dict[str, Any] = {"status": ended.status, "seconds": round(ended.seconds, 1)}
    if ended.status == 0:
        return record | {"outcome": "went on" if hit else "too late"}
    return record | {"outcome": "resumed", "message": _check_stop(case, ended)}


def _hit(case: Injection, process: "subprocess.Popen[str]", run: Run) -> bool:
    """Wait and send the signal; return whether the target was there to receive it."""
    directory_cases.wait(run, process, case)
    number = getattr(signal, case.signal)
    with contextlib.suppress(psutil.NoSuchProcess):
        command = psutil.Process(process.pid)
        while process.poll() is None and (victim := _find(command, case.target)) is None:
            time.sleep(0.02)
        if process.poll() is not None:
            return False
        assert victim is not None, "the loop ended for it"
        victim.send_signal(number)
        if case.signal == "SIGSTOP" and case.target in ("command", "driver"):
            # Only its user could end a stopped driver, so it is woken up after a while.
            time.sleep(DEADLINE_S + 5)
            victim.send_signal(signal.SIGCONT)
        return True
    return False


def _find(command: psutil.Process, target: str) -> psutil.Process | None:
    """The target's process; None while it has not started."""
    if target == "command":
        return command
    if target == "driver":
        return next(iter(command.children()), None)
    for process in command.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess, IndexError):
            if TARGETS[target] in process.cmdline()[0]:
                return process
    return None


def _check_stop(case: Injection, ended: Ended) -> str:
    """Check that an unfinished call reported one of our errors, unless the signal was for it."""
    assert "Traceback" not in ended.output, f"a traceback: {ended.output[-3000:]}"
    number = getattr(signal, case.signal)
    # Before the handler is in place, the signal itself ends the process.
    if case.target == "command" and ended.status in (-number, 128 + number):
        assert case.signal == "SIGKILL" or ended.seconds < STOP_S, f"took {ended.seconds:.0f} s"
        return "stopped as asked"
    if case.target == "driver" and case.signal == "SIGTERM" and ended.status == 128 + number:
        return "stopped as asked"
    last = ended.output.strip().splitlines()[-1] if ended.output.strip() else ""
    assert ended.status in (2, 4), f"status {ended.status}: {ended.output[-1500:]}"
    assert last.startswith("error: "), f"the last line is not one of our errors: {last}"
    return last

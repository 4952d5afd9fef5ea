"""Run training in a child process, so that its parent can report when something kills it.

Ray's C++ code and the kernel can end a process before Python says anything. So the command forks:
the child trains; the parent passes signals on, cleans up if needed, and says what to do.
"""

import atexit
import contextlib
import ctypes
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator

import psutil

from refblend.errors import BEGUN, WorkerError
from refblend.lifecycle import folders

_PASSED_ON = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
_SI_KERNEL = 0x80
"""``si_code`` of a signal from the terminal, which the child has received as well."""
_PR_SET_PDEATHSIG = 1
_PATIENCE_S = 10.0


def guard() -> None:
    """Fork and return in the child. The parent waits and exits like it, or raises WorkerError."""
    sys.stdout.flush()
    sys.stderr.flush()
    parent, mark = os.getpid(), folders.mark_command()
    reader, writer = os.pipe()
    blocked = _PASSED_ON | {signal.SIGCHLD}
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    child = os.fork()
    if child == 0:
        _die_with(parent)
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)
        os.close(reader)
        # Runs when Python ends the process, whatever the reason; not when something else does.
        atexit.register(os.write, writer, b".")
        return
    os.close(writer)
    status, passed_on = _wait(child, blocked)
    signal.pthread_sigmask(signal.SIG_SETMASK, previous)
    # A child that ends by itself without Python's leave has said why (lifecycle/stalls.py).
    spoken = _has_byte(reader) or status == BEGUN or -status in passed_on
    # Who was cut short while it cleaned up has left something, too.
    if not spoken or folders.folders_of(mark):
        clean_up(mark)
    if spoken:
        sys.exit(status if status >= 0 else 128 - status)  # as a shell has it
    cause = f"signal {signal.Signals(-status).name}" if status < 0 else "Ray, whose raylet is gone,"
    raise WorkerError(
        f"{cause} ended the training process",
        "Call the same command again: it resumes from the last checkpoint. If it happens again, "
        "look at the machine's memory.",
    )


def _has_byte(reader: int) -> bool:
    """Whether the child, which has ended, wrote into the pipe."""
    os.set_blocking(reader, False)
    with contextlib.suppress(BlockingIOError):
        return os.read(reader, 1) != b""
    return False


def _die_with(parent: int) -> None:
    """Let the kernel end this process when its parent is gone."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)


def _wait(child: int, blocked: frozenset[signal.Signals]) -> tuple[int, set[int]]:
    """Pass signals on until the child ends; its status (or minus its signal) and those signals."""
    passed_on: set[int] = set()
    while True:
        arrived = signal.sigwaitinfo(blocked)
        if arrived.si_signo == signal.SIGCHLD:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status), passed_on
        elif arrived.si_code != _SI_KERNEL:
            os.kill(child, arrived.si_signo)
            passed_on.add(arrived.si_signo)


def clean_up(mark: str) -> None:
    """End what is left of the private clusters of a command, and remove their folders."""
    deadline = time.monotonic() + _PATIENCE_S
    # Ray's processes end by themselves when their driver is gone, if they are not stopped.
    while (left := list(cluster_processes(mark))) and time.monotonic() < deadline:
        time.sleep(0.2)
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    for folder in folders.folders_of(mark):
        shutil.rmtree(folder, ignore_errors=True)


def cluster_processes(mark: str) -> Iterator[psutil.Process]:
    """Living processes of private clusters, which all know the folder with this mark."""
    folder = f"{folders.PREFIX}{mark}"
    for process in psutil.process_iter(["cmdline", "environ", "status"]):
        words = [*(process.info["cmdline"] or []), *(process.info["environ"] or {}).values()]
        known = any(folder in word for word in words)
        if known and process.info["status"] != psutil.STATUS_ZOMBIE:
            yield process

"""How jobs end with the workflow that started them, and what a killed workflow leaves behind.

A job gets SIGTERM when its Snakemake ends or receives SIGTERM. Each Snakemake call holds a lock, so
that the next one can tell the locks of a killed call from those of a living one.
"""

import contextlib
import fcntl
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from refblend.errors import ResourceError

SUPERVISOR = "REFBLEND_SUPERVISOR"
"""Environment of every job: process of its Snakemake, colon, folder of the project."""
PATIENCE_S = 90.0
"""Longer than a training run takes to save its step after SIGTERM."""
stopping = threading.Event()
"""In Snakemake: SIGTERM has come."""
_SHELLS = ("bash", "dash", "sh", "zsh", "fish")


def supervisor_value(folder: Path) -> str:
    """Value of :data:`SUPERVISOR` for jobs of this process in the project ``folder``."""
    return f"{os.getpid()}:{folder}"


def follow_supervisor() -> None:
    """In a job: follow its Snakemake. Elsewhere: do nothing."""
    pid = os.environ.get(SUPERVISOR, "").partition(":")[0]
    if pid.isdecimal():
        follow(int(pid))


def follow_dvc() -> None:
    """In a DVC stage: follow ``dvc``, which does not end its command when it is killed."""
    if "DVC_STAGE" in os.environ:
        for process in psutil.Process().parents():
            if process.name() not in _SHELLS:
                follow(process.pid)
                return


def follow(pid: int) -> None:
    """Send SIGTERM to this process once the process ``pid``, an ancestor, has ended."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        handle = -1
    known = handle >= 0 and pid in (process.pid for process in psutil.Process().parents())

    def wait() -> None:
        if known:
            # Readable as soon as the process has ended, whether or not its parent waited for it.
            select.select([handle], [], [])
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="follow", daemon=True).start()


def pass_on_sigterm() -> None:
    """In Snakemake: SIGTERM also ends the jobs; Snakemake alone would wait hours for them."""
    previous = signal.getsignal(signal.SIGTERM)

    def stop(signum: int) -> None:
        stopping.set()
        if callable(previous):
            previous(signum, None)
        told: set[int] = set()
        # Jobs may still be about to start; each is signalled once, as a second signal would cut it
        # short.
        while True:
            for job in job_processes(psutil.Process()):
                if job.pid not in told:
                    told.add(job.pid)
                    with contextlib.suppress(psutil.NoSuchProcess):
                        job.terminate()
            time.sleep(0.5)

    # In a thread: Snakemake's handler takes a lock that the interrupted code may hold.
    signal.signal(
        signal.SIGTERM,
        lambda signum, frame: threading.Thread(target=stop, args=(signum,), daemon=True).start(),
    )


def job_processes(parent: psutil.Process) -> Iterator[psutil.Process]:
    """The programs that the jobs' shells run; not what those start, and not ``tee``."""
    children: list[psutil.Process] = []
    with contextlib.suppress(psutil.NoSuchProcess):
        children = parent.children()
    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess):
            name = child.name()
            if name in _SHELLS:
                yield from job_processes(child)
            elif name != "tee":
                yield child


def release_stale_locks(
    folder: Path, say: Callable[[str], None], patience_s: float = PATIENCE_S
) -> None:
    """In Snakemake, before it checks its locks: remove those that a killed call left.

    Another living call is named (``say``). ResourceError for jobs that do not end in time.
    """
    state = folder / ".snakemake"
    state.mkdir(exist_ok=True)
    in_use = state / "in_use"
    # Never closed: the lock is held as long as the process lives.
    handle = os.open(in_use, os.O_RDWR | os.O_CREAT)
    locks = list((state / "locks").glob("*.lock"))
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        if locks:
            others = ", ".join(map(str, _users(in_use)))
            say(f"Another call of Snakemake works here (process {others}): wait for it or stop it.")
    else:
        if locks:
            _await_orphans(folder, say, patience_s)
            for lock in locks:
                lock.unlink(missing_ok=True)
            say("A call before this one was killed: its lock is removed, its jobs are resumed.")
    fcntl.flock(handle, fcntl.LOCK_SH)


def _users(path: Path) -> list[int]:
    """Other processes that have a file open."""
    return [
        process.pid
        for process in psutil.process_iter(["open_files"])
        if str(path) in (file.path for file in process.info["open_files"] or ())
        and process.pid != os.getpid()
    ]


def _await_orphans(folder: Path, say: Callable[[str], None], patience_s: float) -> None:
    """Wait for the jobs of killed calls, which end on their own."""
    deadline = time.monotonic() + patience_s
    told = False
    while orphans := _orphans(folder):
        names = ", ".join(map(str, orphans))
        if time.monotonic() > deadline:
            raise ResourceError(
                f"jobs of a killed call still run in {folder}: processes {names}",
                f"Wait for them or end them (kill {names.replace(',', '')}), then call again.",
            )
        if not told:
            say(f"A call before this one was killed; its jobs are ending (processes {names}).")
            told = True
        time.sleep(0.5)


def _orphans(folder: Path) -> list[int]:
    """Processes of the jobs of killed calls, Ray's included."""
    return sorted(
        process.pid
        for process in psutil.process_iter(["environ", "status"])
        if (process.info["environ"] or {}).get(SUPERVISOR, "").partition(":")[2] == str(folder)
        and process.info["status"] != psutil.STATUS_ZOMBIE
        and process.pid != os.getpid()
    )

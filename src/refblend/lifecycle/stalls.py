"""A deadline for Ray's calls, which have none when one of its processes hangs.

A stopped raylet blocks ``ray.get`` inside C++ code, where no exception arrives. Ending the process
is the only way out; the next call resumes.
"""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator

import psutil

from refblend.errors import BEGUN

GRACE_S = 60.0
"""What a call that should return at once may take, and others beyond their own deadline."""


@contextlib.contextmanager
def stall_limit(what: str, seconds: float = 0.0) -> Iterator[None]:
    """End this process and its children when ``what`` takes ``GRACE_S`` beyond ``seconds``."""
    timer = threading.Timer(seconds + GRACE_S, _abandon, (what, seconds + GRACE_S))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _abandon(what: str, seconds: float) -> None:
    """Called by the timer's thread while the main thread is stuck."""
    print(
        f"error: {what}: Ray did not answer within {seconds:g} s. "
        "Call the same command again: it resumes from the last checkpoint.",
        file=sys.stderr,
        flush=True,
    )
    children = [process.pid for process in psutil.Process().children(recursive=True)]
    # Ray ends this process with its own status as soon as it notices that its raylet is gone, so
    # nothing may come between the children's end and ours.
    for pid in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    os._exit(BEGUN)

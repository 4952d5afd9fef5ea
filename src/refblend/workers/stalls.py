"""A limit for calls that have no deadline of their own: Ray's, when one of its processes hangs.

A stopped raylet blocks ``ray.put`` and even ``ray.get`` with a timeout inside C++ code, where
neither an exception nor a signal handler can reach them. Then the only way on is to end the
process: the next call of the same command resumes from the last checkpoint.
"""

import contextlib
import os
import sys
import threading
from collections.abc import Iterator

import psutil

GRACE_S = 60.0
"""What a call that should return at once may take, and others beyond their own deadline."""

EXIT_STATUS = 2
"""As of every error that a user can mend."""


@contextlib.contextmanager
def stall_limit(what: str, seconds: float = 0.0) -> Iterator[None]:
    """End this process and its children when the block takes ``GRACE_S`` more than its due.

    Args:
        what: the call, for the message.
        seconds: the call's own deadline.
    """
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
    children = psutil.Process().children(recursive=True)
    for process in children:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(children, timeout=5)
    os._exit(EXIT_STATUS)

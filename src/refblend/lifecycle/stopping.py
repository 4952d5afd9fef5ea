"""Stopping on request: SIGTERM ends a run after its present step, with a checkpoint."""

import contextlib
import signal
import time
from collections.abc import Iterator
from types import FrameType

ECHO_S = 1.0
"""A signal to a group of processes comes twice: once more from the guardian, which passes it on."""


class Terminated(SystemExit):
    """The process was asked to stop; the exit status is the shell's, 128 + the signal."""

    def __init__(self, signum: int) -> None:
        super().__init__(128 + signum)


class StopRequest:
    """Whether SIGTERM has come; see :func:`terminate_cleanly`.

    Args:
        grace_s: seconds that a protected block may still take.
    """

    def __init__(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self._signum: int | None = None
        self._protected = False
        self._last: int | None = None
        self._received = 0.0

    @property
    def pending(self) -> bool:
        """Whether the run is to stop after its present step."""
        return self._signum is not None

    @contextlib.contextmanager
    def protected(self) -> Iterator[None]:
        """A block that is finished before the stop, within the grace and unless asked again.

        Raises:
            Terminated: at the end of the block, when the signal came meanwhile.
        """
        self._protected = True
        try:
            yield
        finally:
            self._protected = False
            signal.setitimer(signal.ITIMER_REAL, 0)
        if self._signum is not None:
            raise Terminated(self._signum)

    def receive(self, signum: int, frame: FrameType | None) -> None:
        """The handler of SIGTERM, and of the timer that ends the grace."""
        del frame
        now = time.monotonic()
        if signum == self._last and now - self._received < ECHO_S:
            return
        self._last, self._received = signum, now
        if self._signum is None and self._protected:
            self._signum = signum
            signal.setitimer(signal.ITIMER_REAL, self._grace_s)
            return
        raise Terminated(self._signum or signum)


@contextlib.contextmanager
def terminate_cleanly(grace_s: float) -> Iterator[StopRequest]:
    """Turn SIGTERM into :class:`Terminated`, so that ``finally`` blocks shut the cluster down."""
    request = StopRequest(grace_s)
    previous = {s: signal.signal(s, request.receive) for s in (signal.SIGTERM, signal.SIGALRM)}
    try:
        yield request
    finally:
        for signum, handler in previous.items():
            signal.signal(signum, handler)

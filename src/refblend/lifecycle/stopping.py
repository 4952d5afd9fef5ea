"""Stopping on request: SIGTERM or Ctrl-C ends a run after its current step, with a checkpoint."""

import contextlib
import signal
import time
from collections.abc import Iterator
from types import FrameType

ECHO_S = {signal.SIGTERM: 1.0, signal.SIGINT: 0.3}
"""Within so many seconds a signal is an echo of the same one: one to a group of processes comes
once more from the guardian, which passes it on. Nobody means two Ctrl-C by less."""


class Terminated(SystemExit):
    """The process was asked to stop; the exit status is the shell's, 128 + the signal."""

    def __init__(self, signum: int) -> None:
        super().__init__(128 + signum)


class GraceOverError(Terminated):
    """The protected block took longer than its grace: what can still be saved should be."""


class StopRequest:
    """Whether SIGTERM or SIGINT has come; protected blocks may take ``grace_s`` seconds more."""

    def __init__(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self._signum: int | None = None
        self._protected = False
        self._last: int | None = None
        self._received = 0.0

    @property
    def pending(self) -> bool:
        """Whether the run should stop after its current step."""
        return self._signum is not None

    @contextlib.contextmanager
    def protected(self) -> Iterator[None]:
        """A block that a stop waits for, until the grace is over or a second signal comes.

        Raises Terminated at its end or at a second signal, GraceOverError when the grace is over.
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
        """The handler of both signals, and of the timer that ends the grace."""
        del frame
        now = time.monotonic()
        if signum == self._last and now - self._received < ECHO_S.get(signal.Signals(signum), 0.0):
            return
        self._last, self._received = signum, now
        if self._signum is None and self._protected:
            self._signum = signum
            signal.setitimer(signal.ITIMER_REAL, self._grace_s)
            return
        if signum == signal.SIGALRM:
            raise GraceOverError(self._signum or signum)
        raise Terminated(self._signum or signum)


@contextlib.contextmanager
def terminate_cleanly(grace_s: float) -> Iterator[StopRequest]:
    """Turn SIGTERM and SIGINT into :class:`Terminated`, so that ``finally`` blocks are run."""
    request = StopRequest(grace_s)
    handled = (signal.SIGTERM, signal.SIGINT, signal.SIGALRM)
    previous = {signum: signal.signal(signum, request.receive) for signum in handled}
    try:
        yield request
    finally:
        for signum, handler in previous.items():
            signal.signal(signum, handler)

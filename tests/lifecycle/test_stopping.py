"""SIGTERM and Ctrl-C: the present step is finished, within a grace, unless asked again."""

import os
import signal

import pytest

from refblend.lifecycle import stopping


def test_sigterm_becomes_the_shell_s_status_and_unwinds():
    before = signal.getsignal(signal.SIGTERM)
    unwound = []

    def work() -> None:
        with stopping.terminate_cleanly(30.0):
            try:
                os.kill(os.getpid(), signal.SIGTERM)
                signal.pause()
            finally:
                unwound.append(True)

    with pytest.raises(SystemExit) as stop:
        work()
    assert stop.value.code == 143
    assert unwound == [True]
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(
    ("signals", "echo", "grace", "finished"),
    [(1, 1.0, 30.0, 1), (2, 60.0, 30.0, 1), (2, 0.0, 30.0, 0), (1, 1.0, 0.05, 0)],
)
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_protected_step_ends_before_the_stop(monkeypatch, signum, signals, echo, grace, finished):
    """Unless a second signal comes that is not an echo of the first, or the grace is over."""
    monkeypatch.setitem(stopping.ECHO_S, signum, echo)
    done: list[bool] = []

    def step(stop: stopping.StopRequest) -> None:
        with stop.protected():
            assert not stop.pending
            for _ in range(signals):
                os.kill(os.getpid(), signum)
            assert stop.pending
            if not finished:
                signal.pause()
            done.append(True)

    def work() -> None:
        with stopping.terminate_cleanly(grace) as stop:
            step(stop)
            step(stop)

    with pytest.raises(stopping.Terminated) as caught:
        work()
    assert caught.value.code == 128 + signum
    assert isinstance(caught.value, stopping.GraceOverError) == (grace < 1)
    assert len(done) == finished
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)

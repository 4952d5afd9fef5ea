import os
import signal
import threading
import time

import pytest

from refblend.errors import DataError
from refblend.rewards.math import compute_score


def test_an_unreadable_gold_answer_is_an_error() -> None:
    with pytest.raises(DataError, match="cannot be read as mathematics"):
        compute_score("7", " ")


@pytest.mark.parametrize("text", [f"${'':20000}$", rf"\boxed{{x{'':20000}y}}", "1" * 9000 + "e"])
def test_a_long_response_takes_no_time_but_the_librarys(text, monkeypatch) -> None:
    monkeypatch.setattr("refblend.rewards.math._SECONDS", 1)
    begin = time.monotonic()
    assert compute_score(text, "5") == 0
    assert time.monotonic() - begin < 4


def test_the_alarm_of_a_stopping_run_is_left_whatever_the_library_does(monkeypatch) -> None:
    def verify(*_: object, **__: object) -> bool:
        signal.setitimer(signal.ITIMER_REAL, 0)
        raise RuntimeError("the library's own")

    monkeypatch.setattr("math_verify.verify", verify)
    try:
        signal.setitimer(signal.ITIMER_REAL, 60)
        with pytest.raises(RuntimeError, match="the library's own"):
            compute_score(r"\boxed{2}", "3")
        assert 50 < signal.getitimer(signal.ITIMER_REAL)[0] <= 60
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def test_an_endless_computation_is_wrong_and_leaves_the_alarm_of_a_stopping_run(monkeypatch):
    monkeypatch.setattr("refblend.rewards.math._SECONDS", 1)
    fired = []
    previous = signal.signal(signal.SIGALRM, lambda *_: fired.append(time.monotonic()))
    try:
        begin = time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, 3)
        assert compute_score(r"\boxed{9^{9^{9^9}}}", "3") == 0
        assert not fired
        while not fired and time.monotonic() < begin + 10:
            time.sleep(0.05)
        assert len(fired) == 1
        assert fired[0] - begin < 5
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def test_a_request_to_stop_waits_for_the_end_of_the_comparison(monkeypatch) -> None:
    """Otherwise the library would clear the alarm that the request sets."""
    told: list[str] = []

    def receive(*_: object) -> None:
        told.append("stop")
        signal.setitimer(signal.ITIMER_REAL, 60)

    def verify(*_: object, **__: object) -> bool:
        os.kill(os.getpid(), signal.SIGTERM)
        told.append("compared")
        signal.alarm(0)
        return True

    monkeypatch.setattr("math_verify.verify", verify)
    previous = signal.signal(signal.SIGTERM, receive)
    done = threading.Event()
    other = threading.Thread(target=done.wait)  # takes a signal that the main thread blocks
    other.start()
    try:
        assert compute_score(r"\boxed{2.0}", "2") == 1
        assert told == ["compared", "stop"]
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 50
    finally:
        done.set()
        other.join()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGTERM, previous)

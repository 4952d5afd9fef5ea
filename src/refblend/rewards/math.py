r"""Rule reward of MATH: is the response's answer equal to the gold answer as mathematics?

The library math-verify (https://github.com/huggingface/Math-Verify, Apache-2.0) parses both and
compares numbers, fractions, sets, intervals and expressions. ``strict`` reads the last ``\boxed{}``
of the response, ``flexible`` its last mathematical expression or number wherever that stands.
"""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from refblend.data.math import extract_boxed
from refblend.errors import DataError
from refblend.rewards.gsm8k import Method
from refblend.rewards.result import RewardResult

_SECONDS = 5
"""Time limit of one parse or comparison; what takes longer, such as a tower of powers, is wrong."""


def compute_score(solution_str: str, ground_truth: str, method: Method = "flexible") -> float:
    """1 for an answer equal to the gold answer, 0 if not; DataError if that is not LaTeX."""
    if method == "strict":
        boxed = extract_boxed(solution_str)
        return 0.0 if boxed is None else _equal(_boxed(boxed), ground_truth)
    return _equal(solution_str, ground_truth)


def answer_score(solution_str: str, ground_truth: str, method: Method) -> RewardResult:
    """Both scores of a response, and the one of the training reward."""
    strict = compute_score(solution_str, ground_truth, "strict")
    flexible = strict or compute_score(solution_str, ground_truth, "flexible")
    return RewardResult(strict if method == "strict" else flexible, strict, flexible)


def _boxed(answer: str) -> str:
    return rf"$\boxed{{{answer}}}$"


def _equal(text: str, ground_truth: str) -> float:
    from math_verify import verify  # slow to import, and needed only for this data

    with _alarm_kept():
        return float(verify(_gold(ground_truth), _parse(text), timeout_seconds=_SECONDS))


@contextmanager
def _alarm_kept() -> Iterator[None]:
    """The library's time limits use the process's one alarm clock; a run that stops uses it too.

    A request to stop waits for the end of the comparison, or the library would clear its alarm.
    It is held by a handler: a signal mask holds for one thread, and any other may take the signal.
    """
    requests: list[int] = []
    numbers = signal.SIGINT, signal.SIGTERM
    handlers = {n: handler for n in numbers if (handler := signal.getsignal(n)) is not None}
    for number in handlers:
        signal.signal(number, lambda request, _: requests.append(request))
    left, begin = signal.getitimer(signal.ITIMER_REAL)[0], time.monotonic()
    try:
        yield
    finally:
        if left:
            signal.setitimer(signal.ITIMER_REAL, max(1e-3, left - (time.monotonic() - begin)))
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for request in requests:
            signal.raise_signal(request)


@cache
def _gold(ground_truth: str) -> Any:
    parsed = _parse(_boxed(ground_truth))
    if not parsed:
        raise DataError(
            f"the ground truth {ground_truth[:80]!r} cannot be read as mathematics",
            "Correct the data, or name a function for such answers in "
            "reward.custom_reward_function.",
        )
    return parsed


def _parse(text: str) -> Any:
    from math_verify import parse

    return parse(text, parsing_timeout=_SECONDS)

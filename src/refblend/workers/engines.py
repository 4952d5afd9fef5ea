"""Several engines of one role: a batch is dealt out among them and its answers are put back."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray

from refblend.lifecycle.stalls import stall_limit
from refblend.rollout.base import Work, split_rows
from refblend.workers.groups import Future, WorkerGroup
from refblend.workers.restarts import WorkerTimeoutError


@dataclass
class Part:
    """The share of one engine in a call."""

    engine: int
    rows: list[int]
    future: Future
    answered: bool = False
    """Whether the engine answered; not before the call was waited for, and not past a deadline."""


@dataclass
class SplitCall:
    """A call whose rows are under way on several engines; made by :func:`split`."""

    engines: Sequence[WorkerGroup]
    parts: list[Part]
    size: int
    """Rows of the call."""
    launched: float = field(default_factory=time.monotonic)
    """Monotonic clock, in seconds."""
    seconds: float = 0.0
    """What the slowest engine worked (:attr:`Future.seconds`), once all were waited for."""

    def results(
        self, instead: Callable[[WorkerTimeoutError, int], Sequence[Any]] | None = None
    ) -> list[Any]:
        """The answers of all rows, in order; ``instead`` supplies those that miss the deadline."""
        answers: list[Any] = [None] * self.size
        deadline = time.monotonic() + self.engines[0].timeout_s
        waiting = list(self.parts)
        while waiting:
            part = _first_done(waiting, deadline)
            waiting.remove(part)
            try:
                left_s = _left(deadline) if len(self.parts) > 1 else None
                found = part.future.results(left_s)[0]
                worked, part.answered = part.future.seconds, True
            except WorkerTimeoutError as error:
                if instead is None:
                    raise
                found = instead(error, len(part.rows))
                worked = time.monotonic() - self.launched
            self.seconds = max(self.seconds, worked)
            for row, answer in zip(part.rows, found, strict=True):
                answers[row] = answer
        return answers


def _left(deadline: float) -> float:
    """Seconds until the deadline, at least 1, so that an answer that is ready is still taken."""
    return max(1.0, deadline - time.monotonic())


def _first_done(parts: Sequence[Part], deadline: float) -> Part:
    """The part that finishes or fails first, or any part once the deadline has passed."""
    by_reference = {part.future.references[0]: part for part in parts}
    if len(parts) == 1:
        return parts[0]
    left = _left(deadline)
    with stall_limit("waiting for the engines", left):
        done, _ = ray.wait(list(by_reference), num_returns=1, timeout=left)
    return by_reference[done[0]] if done else parts[0]


def split(
    engines: Sequence[WorkerGroup], method: str, columns: Sequence[Sequence[Any]], work: Work
) -> SplitCall:
    """Call a method on each engine with its rows of all columns, without waiting."""
    parts = []
    for number, rows in enumerate(split_rows(work, len(engines))):
        if rows:
            own = [[column[row] for row in rows] for column in columns]
            parts.append(Part(number, rows, engines[number].call(method, *own)))
    return SplitCall(engines, parts, len(work.keys))

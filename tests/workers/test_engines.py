"""How the answers of several engines are put together again."""

from typing import Any, cast

import pytest

from refblend.rollout.base import Work
from refblend.scoring.judge import CallStats
from refblend.scoring.result import JudgeResult
from refblend.workers import groups
from refblend.workers.groups import Part, SplitCall, split
from refblend.workers.restarts import RestartBudget, WorkerTimeoutError
from refblend.workers.worker_set import WorkerSet


class FakeFuture:
    def __init__(self, answers: Any, seconds: float) -> None:
        self.references = (object(),)
        self.answers = answers
        self.seconds = seconds

    def results(self, left_s: float | None) -> Any:
        return [self.result()]

    def result(self) -> Any:
        if isinstance(self.answers, Exception):
            raise self.answers
        return self.answers


class FakeEngine:
    """Doubles numbers, or misses its deadline."""

    role = "judge"
    timeout_s = 5.0

    def __init__(self, error: Exception | None = None, seconds: float = 1.0) -> None:
        self.error = error
        self.seconds = seconds

    def call(self, method: str, *columns: list[int]) -> FakeFuture:
        if method == "last_call":
            return FakeFuture(CallStats(samples=1, requests=1, seconds=self.seconds), 0.0)
        assert method == "double"
        return FakeFuture(self.error or [2 * n for n in columns[0]], self.seconds)


@pytest.fixture
def last_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine that was asked last is done first."""
    monkeypatch.setattr(groups.ray, "wait", lambda waiting, **_: (waiting[-1:], waiting[:-1]))


@pytest.mark.usefixtures("last_first")
def test_answers_come_back_in_the_order_of_the_batch():
    members = [FakeEngine(seconds=seconds) for seconds in (1.0, 2.0, 4.0)]
    numbers = list(range(10))
    work = Work([n % 4 for n in numbers], [1] * 10, [1] * 10)
    call = split(cast("Any", members), "double", [numbers], work)
    assert call.results() == [2 * n for n in numbers]
    assert call.seconds == 4.0
    assert all(part.answered for part in call.parts)


LATE = WorkerTimeoutError("the judge worker did not answer within 5 s", "Raise it.")


@pytest.mark.usefixtures("last_first")
def test_an_engine_that_is_late_fails_the_call_or_its_own_share():
    members = cast("Any", [FakeEngine(), FakeEngine(LATE)])
    work = Work("aabb", [1] * 4, [1] * 4)
    with pytest.raises(WorkerTimeoutError):
        split(members, "double", [[1, 2, 3, 4]], work).results()
    call = split(members, "double", [[1, 2, 3, 4]], work)
    assert call.results(lambda error, count: [0] * count) == [2, 4, 0, 0]
    assert [part.answered for part in call.parts] == [True, False]


@pytest.mark.usefixtures("last_first")
def test_past_a_deadline_of_its_own_a_judge_s_samples_have_no_score(tiny_config):
    """Of the engine that was late, whose statistics would be of an earlier batch."""
    key = "algorithm.ref_quality_score"
    config = tiny_config(f"{key}.scoring.timeout_s=5", f"{key}.invalid_score=0.25")
    workers = WorkerSet(config, cast("Any", None), RestartBudget(1), print)
    members = cast("Any", [FakeEngine(), FakeEngine()])
    good = JudgeResult(0.75, True, "text")
    futures = [FakeFuture(LATE, 1.0), FakeFuture([good], 1.0)]
    rows = [[0, 2], [1]]
    parts = [Part(*part) for part in zip(members, rows, cast("Any", futures), strict=True)]
    results, call = workers.judge_results(SplitCall(parts, 5.0))
    assert results[1] == good
    late = [results[0], results[2]]
    assert [(v.score, v.valid, v.path) for v in late] == [(0.25, False, "error")] * 2
    assert "did not answer within 5 s" in late[0].raw
    assert call == CallStats(samples=1, requests=1, seconds=1.0)


def test_statistics_of_engines_side_by_side():
    one = CallStats(4, 3, 2.0, 30, 12)
    assert CallStats.merged([one]) == one
    assert CallStats.merged([]) == CallStats()
    both = CallStats.merged([one, CallStats(2, 2, 5.0, 10, 6), CallStats(1, 0, 0.0, 0, 0)])
    assert both == CallStats(7, 5, 5.0, 40, 18)

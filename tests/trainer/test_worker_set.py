"""What becomes of a batch whose judge misses its deadline."""

from typing import Any, cast

from refblend.scoring.judge import CallStats
from refblend.scoring.result import JudgeResult
from refblend.workers import engines
from refblend.workers.engines import EngineGroup, Part, SplitCall
from refblend.workers.restarts import RestartBudget, WorkerTimeoutError
from refblend.workers.worker_set import WorkerSet


class Late:
    """One of two judges, whose call ended at the deadline; it was replaced meanwhile."""

    references = ("late",)

    def results(self, left_s: float | None) -> Any:
        raise WorkerTimeoutError("the judge worker did not answer within 1 s", "Raise it.")


class Answer:
    """A call that is answered at once."""

    references = ("answered",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def results(self, left_s: float | None) -> Any:
        return [self.value]

    def result(self) -> Any:
        return self.value


class Judge:
    """An engine; ``last_call`` of one that was late would be of an earlier batch."""

    role = "judge"

    def call(self, method: str) -> Answer:
        assert method == "last_call"
        return Answer(CallStats(samples=1, requests=1, seconds=2.0, prompt_tokens=10))


def test_past_a_deadline_of_its_own_the_samples_have_no_score(tiny_config, monkeypatch) -> None:
    """Of the engine that was late; the other's samples keep theirs."""
    key = "algorithm.ref_quality_score"
    config = tiny_config(f"{key}.scoring.timeout_s=1", f"{key}.invalid_score=0.25")
    monkeypatch.setattr(engines.ray, "wait", lambda waiting, **_: (["answered"], ["late"]))
    group = EngineGroup(cast("Any", [Judge(), Judge()]), timeout_s=1)
    workers = WorkerSet(config, cast("Any", None), RestartBudget(1), print)
    good = JudgeResult(0.75, True, "text")
    parts = [Part(0, [0, 2], cast("Any", Late())), Part(1, [1], cast("Any", Answer([good])))]
    results, call = workers.judge_results(SplitCall(group, parts, 3))
    assert results[1] == good
    late = [results[0], results[2]]
    assert [(v.score, v.valid, v.path) for v in late] == [(0.25, False, "error")] * 2
    assert "did not answer within 1 s" in late[0].raw
    assert call == CallStats(samples=1, requests=1, seconds=2.0, prompt_tokens=10)

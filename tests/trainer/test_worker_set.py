"""A judge that misses its deadline; where engines get pushed weights from."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from refblend.scoring.judge import CallStats
from refblend.scoring.result import JudgeResult
from refblend.workers import engines
from refblend.workers.engines import EngineGroup, Part, SplitCall
from refblend.workers.restarts import RestartBudget, WorkerDiedError, WorkerTimeoutError
from refblend.workers.worker_set import WorkerSet


class Late:
    """One of two judges, whose call ended at the deadline; it was replaced meanwhile."""

    references = ("late",)

    def results(self, left_s: float | None) -> Any:
        raise WorkerTimeoutError("the judge worker did not answer within 1 s", "Raise it.")


class Answer:
    """A call that is answered at once."""

    references = ("answered",)
    seconds = 1.0

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


class Group:
    """Ranks on some machines, which only write down what they are asked."""

    def __init__(self, *machines: str) -> None:
        self.machines = machines
        self.asked: list[Any] = []

    def call(self, *asked: Any) -> Any:
        self.asked.append(asked)
        references = [f"{asked[0]} of rank {i}" for i in range(2)]
        return SimpleNamespace(references=references, results=list)


@pytest.mark.parametrize(
    ("machines", "asked", "received"),
    [
        (["here"], ["pack_weights"], [None]),
        (["here", "here"], ["pack_weights"], [None, None]),
        (
            ["here", "there", "there"],
            ["pack_weights", "packed_bytes"],
            [None, "packed_bytes of rank 0", "packed_bytes of rank 0"],
        ),
    ],
)
def test_engines_elsewhere_get_the_bytes_and_others_the_memory(
    tiny_config, machines, asked, received
) -> None:
    actor, rollout = Group("here", "elsewhere"), [Group(machine) for machine in machines]
    workers = WorkerSet(tiny_config(), cast("Any", None), RestartBudget(1), print)
    workers.groups["actor"] = cast("Any", actor)
    workers.engines["rollout"] = cast("Any", SimpleNamespace(engines=rollout))
    workers.push_weights(version=4)
    assert workers.version == 4
    assert actor.asked == [(method,) for method in asked]
    for engine, expected in zip(rollout, received, strict=True):
        assert engine.asked == [("load_weights", "pack_weights of rank 0", 4, expected)]


def test_the_death_of_the_actor_in_a_push_is_not_the_engine_s(tiny_config) -> None:
    """Ray raises it in the engine's call as well, which waits for what the actor packs."""

    class Lost(Group):
        def __init__(self, role: str) -> None:
            super().__init__("here")
            self.role = role

        def call(self, *asked: Any) -> Any:
            def die() -> None:
                raise WorkerDiedError(self.role, "gone")

            return SimpleNamespace(references=["packed"], results=die)

    workers = WorkerSet(tiny_config(), cast("Any", None), RestartBudget(1), print)
    workers.groups["actor"] = cast("Any", Lost("actor"))
    workers.engines["rollout"] = cast("Any", SimpleNamespace(engines=[Lost("rollout")]))
    with pytest.raises(WorkerDiedError, match="actor"):
        workers.push_weights(version=1)

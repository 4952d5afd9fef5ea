"""What a wait makes of the answers of several ranks, with Ray's answers given by hand."""

import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from ray.exceptions import (
    ActorDiedError,
    GetTimeoutError,
    ObjectLostError,
    OwnerDiedError,
    RayTaskError,
)

from refblend.config.scoring import SCORING_KEY
from refblend.errors import DataError, WorkerError
from refblend.workers import groups
from refblend.workers.groups import Future, WorkerGroup
from refblend.workers.pools import Place
from refblend.workers.restarts import RestartBudget, WorkerDiedError, WorkerTimeoutError
from refblend.workers.roles import ACTOR, JUDGE


def failed(cause: Exception) -> RayTaskError:
    return RayTaskError("update", "traceback", cause)


@pytest.fixture
def ray_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """``ray.get`` of a list raises its first exception, as Ray does; so does one of a reference."""

    def get(references: Any, timeout: float) -> Any:
        for answer in references if isinstance(references, list) else [references]:
            if isinstance(answer, Exception):
                raise answer
        return references

    monkeypatch.setattr(groups.ray, "get", get)


def wait(*answers: Any) -> list[Any]:
    return groups._wait("actor", answers, 5, "Raise the deadline.")


@pytest.mark.usefixtures("ray_answers")
def test_answers_and_errors_of_the_ranks():
    assert wait(1, 2) == [1, 2]
    with pytest.raises(WorkerTimeoutError, match="did not answer within 5 s"):
        wait(1, GetTimeoutError())
    with pytest.raises(WorkerDiedError, match="the actor worker died"):
        wait(1, ActorDiedError())
    with pytest.raises(DataError, match="of ours"):
        wait(failed(DataError("of ours", "fix it")))
    with pytest.raises(RayTaskError, match="traceback"):
        wait(failed(RuntimeError("a defect")), failed(RuntimeError("a defect")))


@pytest.mark.usefixtures("ray_answers")
@pytest.mark.parametrize("cause", [MemoryError(), torch.OutOfMemoryError("CUDA out of memory")])
def test_a_worker_without_memory_counts_as_dead(cause):
    """So it is replaced, and where that is not allowed the error names what to lower."""
    with pytest.raises(WorkerDiedError, match="the actor worker ran out of memory: ") as caught:
        wait(1, failed(cause))
    budget = RestartBudget(1)
    budget.spend(caught.value)
    with pytest.raises(WorkerError, match="ran out of memory") as last:
        budget.spend(caught.value)
    assert ACTOR.lower in last.value.remedy
    assert (budget.take_shortages(), budget.take_shortages()) == (1, 0)


@pytest.mark.usefixtures("ray_answers")
@pytest.mark.parametrize(
    "lost", [ObjectLostError("aa", "owner", "stack"), OwnerDiedError("aa", "owner", "stack")]
)
def test_what_was_on_a_lost_node_counts_as_a_death(lost):
    """The weights that an engine is given may lie on a node that has gone since."""
    for answer in (lost, failed(lost)):
        with pytest.raises(WorkerDiedError, match="the actor worker died"):
            wait(1, answer)


@pytest.mark.usefixtures("ray_answers")
@pytest.mark.parametrize("death", [ActorDiedError(), ObjectLostError("aa", "owner", "stack")])
def test_a_death_behind_the_failure_of_another_rank_is_found(death):
    """The living rank's collective fails first; the cause is the dead one, or its lost node."""
    broken = failed(RuntimeError("Connection closed by peer"))
    with pytest.raises(WorkerDiedError, match="the actor worker died"):
        wait(broken, death)
    with pytest.raises(RayTaskError):
        wait(broken, GetTimeoutError())


@pytest.mark.usefixtures("ray_answers")
def test_a_late_answer_names_the_deadline_that_it_missed(tiny_config, monkeypatch):
    """The judge may have one of its own."""
    monkeypatch.setattr(WorkerGroup, "_launch", lambda self, places: None)
    config = tiny_config(f"{SCORING_KEY}.timeout_s=5")
    keys = {JUDGE: f"{SCORING_KEY}.timeout_s", ACTOR: "trainer.worker_timeout_s"}
    for role, key in keys.items():
        with pytest.raises(WorkerTimeoutError, match=rf"Raise {key}, or"):
            WorkerGroup(role, config, list).wait([GetTimeoutError()])
    late = WorkerGroup(JUDGE, config, list)
    late._starting = [GetTimeoutError()]
    with pytest.raises(WorkerError, match="start_timeout_s") as caught:
        late.ready()
    assert type(caught.value) is WorkerError, "not a late answer, for which scores are made up"


class LateOnce(WorkerGroup):
    """A group without processes, whose first wait ends at the deadline."""

    def __init__(self, budget: RestartBudget | None, repeats_late: bool = True) -> None:
        self.role = "judge"
        self.generation = 0
        self.launched = 0
        self._account = budget and budget.spend
        self._prepare = lambda group: None
        self._repeats_late = repeats_late

    def wait(self, references: Any, left_s: float | None = None) -> list[Any]:
        if self.launched == 1:
            raise WorkerTimeoutError("the judge worker did not answer within 5 s", "Raise it.")
        return list(references)

    def launch(self) -> list[Any]:
        self.launched += 1
        return [(f"answer {self.launched}", 3.0)]

    def kill(self) -> None: ...

    def _places(self) -> list[Place]:
        return []

    def _launch(self, places: Sequence[Place]) -> None: ...

    def ready(self) -> None: ...


def test_a_group_that_hangs_is_replaced_and_asked_again():
    budget = RestartBudget(1)
    group = LateOnce(budget)
    call = Future(group, group.launch)
    call.launched -= 10.0
    assert call.result() == "answer 2"
    assert (group.generation, budget.spent) == (1, 1)
    assert call.seconds == pytest.approx(10.0 + 3.0, abs=1.0), "the lost time counts"


@pytest.mark.usefixtures("ray_answers")
def test_a_call_takes_as_long_as_its_slowest_rank_works_whenever_it_is_taken_up():
    group = WorkerGroup.__new__(WorkerGroup)
    group.role, group.generation, group.timeout_s, group._late_remedy = "actor", 0, 5.0, ""
    call = Future(group, lambda: [("first", 2.0), ("second", 7.0)])
    call.launched -= 100.0
    assert call.results() == ["first", "second"]
    assert call.seconds == 7.0


def test_a_worker_measures_its_own_calls():
    process = groups.WorkerProcess()
    process._worker = SimpleNamespace(nap=lambda seconds: time.sleep(seconds) or "awake")
    answer, seconds = process.call("nap", 0.05)
    assert answer == "awake"
    assert seconds >= 0.05


@pytest.mark.parametrize("replaced", [True, False])
def test_a_call_that_was_late_need_not_be_made_again(replaced):
    """The judge past its own deadline: the next call finds a fresh one. A state stops the run."""
    budget = RestartBudget(1)
    group = LateOnce(budget if replaced else None, repeats_late=False)
    with pytest.raises(WorkerTimeoutError):
        Future(group, group.launch).result()
    assert (group.generation, group.launched, budget.spent) == (int(replaced), 1, int(replaced))


def test_a_group_that_hangs_too_often_names_its_deadline():
    group = LateOnce(RestartBudget(0))
    with pytest.raises(WorkerError, match=r"did not answer .* replaced 0 times") as caught:
        Future(group, group.launch).result()
    assert caught.value.remedy == "Raise it."

"""What a wait makes of the answers of several ranks, with Ray's answers given by hand."""

from typing import Any

import pytest
from ray.exceptions import ActorDiedError, GetTimeoutError, RayTaskError

from refblend.errors import DataError, WorkerError
from refblend.workers import groups
from refblend.workers.groups import RestartBudget, WorkerDiedError, WorkerTimeoutError


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
def test_answers_and_errors_of_the_ranks() -> None:
    assert wait(1, 2) == [1, 2]
    with pytest.raises(WorkerTimeoutError, match="did not answer within 5 s"):
        wait(1, GetTimeoutError())
    with pytest.raises(WorkerDiedError, match="the actor worker died"):
        wait(1, ActorDiedError())
    with pytest.raises(DataError, match="of ours"):
        wait(failed(DataError("of ours", "mend it")))
    with pytest.raises(RayTaskError, match="traceback"):
        wait(failed(RuntimeError("a defect")), failed(RuntimeError("a defect")))


@pytest.mark.usefixtures("ray_answers")
def test_a_death_behind_the_failure_of_another_rank_is_found() -> None:
    """The living rank's collective fails first; the cause is the dead one."""
    broken = failed(RuntimeError("Connection closed by peer"))
    with pytest.raises(WorkerDiedError, match="the actor worker died"):
        wait(broken, ActorDiedError())
    with pytest.raises(RayTaskError):
        wait(broken, GetTimeoutError())


def test_the_budget_of_replacements_names_its_key() -> None:
    budget = RestartBudget(1)
    budget.spend(WorkerDiedError("judge", "killed"))
    with pytest.raises(WorkerError, match="died: killed; workers were replaced 1 times") as caught:
        budget.spend(WorkerDiedError("judge", "killed"))
    assert "trainer.max_restarts" in caught.value.remedy

"""One, two and three engines of each role behind the controller's calls, without Ray's processes.

A stand-in for Ray makes every call at once, in this process; workers, engines and the model are
real. The same with real processes, deaths and vLLM is in ``tests/trainer/test_recovery.py``.
"""

import os
import traceback
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import torch
from ray.exceptions import ActorDiedError, RayTaskError

from refblend.config import RefblendConfig
from refblend.rollout.base import GenerationRequest
from refblend.workers import groups, worker_set
from refblend.workers.placement import Process as Planned
from refblend.workers.pools import Place
from refblend.workers.restarts import RestartBudget
from refblend.workers.roles import ROLES
from refblend.workers.worker_set import WorkerSet

ROLLOUT = "actor_rollout_ref.rollout"
JUDGE = "algorithm.ref_quality_score.scoring"


class Reference:
    """An answer, or the exception that takes its place."""

    def __init__(self, value: Any) -> None:
        self.value = value


def get(references: Any, timeout: float) -> Any:
    if isinstance(references, list):
        return [get(reference, timeout) for reference in references]
    if isinstance(references.value, Exception):
        raise references.value
    return references.value


class Process:
    """A worker's process: it answers each call at once, until it is struck."""

    started: list["Process"]

    def __init__(self, kind: type) -> None:
        self.name = kind.__name__
        self.dead = False
        self._worker = kind()
        self.started.append(self)

    def __getattr__(self, method: str) -> Any:
        def remote(*arguments: Any) -> Reference | tuple[Reference, Reference]:
            answer = self._answer(method, arguments)
            if method != "call":
                return answer
            if isinstance(answer.value, Exception):
                return answer, answer
            value, seconds = answer.value
            return Reference(value), Reference(seconds)

        return SimpleNamespace(remote=remote)

    def _answer(self, method: str, arguments: tuple[Any, ...]) -> Reference:
        if self.dead:
            return Reference(ActorDiedError())
        try:
            given = [get(a, 0) if isinstance(a, Reference) else a for a in arguments]
            return Reference(getattr(self._worker, method)(*given))
        except Exception as error:  # as Ray does
            return Reference(RayTaskError(method, traceback.format_exc(), error))


def kill(process: Process, no_restart: bool) -> None:
    process.dead = True


class Pools:
    """Everything has a place on one node."""

    def __init__(self, config: RefblendConfig, *_: Any) -> None:
        self.config = config

    def places(self, role: str, number: int | None = None) -> list[Place]:
        place = Place(Planned(role, "pool", 1, 0, "key"), None, "node")  # type: ignore[arg-type]
        return [place] * (ROLES[role].processes(self.config).count if number is None else 1)

    def remove(self) -> None: ...


@pytest.fixture
def start(
    monkeypatch: pytest.MonkeyPatch, tiny_config: Callable[..., RefblendConfig]
) -> Iterator[Callable[..., tuple[WorkerSet, list[str]]]]:
    """``start(engines)`` → the workers, and what the user was told."""
    monkeypatch.setattr(Process, "started", [], raising=False)
    stand_in = SimpleNamespace(
        remote=lambda kind: SimpleNamespace(
            options=lambda **_: SimpleNamespace(remote=lambda: Process(kind))
        ),
        get=get,
        get_runtime_context=lambda: SimpleNamespace(get_accelerator_ids=lambda: {"GPU": ["0"]}),
        put=Reference,
        kill=kill,
        wait=lambda waiting, **_: (waiting[-1:], waiting[:-1]),
    )
    monkeypatch.setattr(groups, "ray", stand_in)
    monkeypatch.setattr(worker_set, "ResourcePools", Pools)
    threads = torch.get_num_threads()

    def make(count: int) -> tuple[WorkerSet, list[str]]:
        kinds = (f"{ROLLOUT}.name=hf", f"{JUDGE}.kind=hf")
        counts = (f"{ROLLOUT}.num_engines={count}", f"{JUDGE}.num_engines={count}")
        told: list[str] = []
        return WorkerSet.start(tiny_config(*kinds, *counts), 2, RestartBudget(2), told.append), told

    with patch.dict(os.environ):
        yield make
    torch.set_num_threads(threads)


def requests() -> list[GenerationRequest]:
    """Five prompts × three samples, one after another as a step sends them."""
    rng = torch.Generator().manual_seed(3)
    prompts = [torch.randint(3, 400, (9 + 7 * i,), generator=rng).tolist() for i in range(5)]
    return [
        GenerationRequest(prompt, 10, 1.0, 100 * i + k)
        for i, prompt in enumerate(prompts)
        for k in range(3)
    ]


def step(workers: WorkerSet, version: int) -> tuple[list[Any], list[float]]:
    """What is sampled and said; and log-probs and scores, which transformers rounds by batch."""
    generations = workers.generate(requests(), version)
    questions = [f"What is {row // 3} + 2?" for row in range(15)]
    answers = [" ".join(map(str, g.token_ids)) for g in generations]
    judging = workers.judge_responses(questions, answers, list(range(15)))
    results, call = workers.judge_results(judging)
    assert call.samples == 15
    texts = [(g.token_ids, r.valid, r.raw) for g, r in zip(generations, results, strict=True)]
    return texts, [p for g in generations for p in g.log_probs] + [r.score for r in results]


def assert_same(found: tuple[list[Any], list[float]], expected: tuple[Any, Any]) -> None:
    assert found[0] == expected[0]
    assert found[1] == pytest.approx(expected[1], abs=1e-5)


def test_the_numbers_are_those_of_one_engine_before_and_after_a_push(start):
    found = []
    for count in (1, 2, 3):
        workers, _ = start(count)
        before = step(workers, 0)
        workers.push_weights(1)  # a generation of an engine without them would be refused
        found.append((before, step(workers, 1)))
        workers.shutdown()
    for ours in found[1:]:
        for numbers, expected in zip(ours, found[0], strict=True):
            assert_same(numbers, expected)


@pytest.mark.parametrize("kind", ["RolloutWorker", "JudgeWorker"])
def test_an_engine_that_dies_is_replaced_alone(start, kind):
    workers, told = start(2)
    workers.push_weights(1)
    expected = step(workers, 1)
    first, second = (p for p in Process.started if p.name == kind)
    second.dead = True
    assert_same(step(workers, 1), expected)  # the new one has the weights of version 1 too
    running = [p for p in Process.started if p.name == kind and not p.dead]
    assert len(running) == 2
    assert first in running
    name = kind.removesuffix("Worker").lower()
    replaced = [line for line in told if "replaced" in line]
    assert len(replaced) == 1
    assert replaced[0].startswith(f"{name} engine 2 of 2: the {name} worker died")
    assert workers.budget.spent == 1

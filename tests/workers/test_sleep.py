"""Engines that share a GPU with the actor: who is awake when, in which order memory comes back."""

from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import call, create_autospec

import pytest

from refblend.config import RefblendConfig
from refblend.errors import ConfigError
from refblend.rollout.vllm_engine import VllmEngine
from refblend.workers import groups
from refblend.workers.engine_workers import JudgeWorker, RolloutWorker
from refblend.workers.restarts import RestartBudget
from refblend.workers.types import Sequences
from refblend.workers.worker_set import WorkerSet

SCORING = "algorithm.ref_quality_score.scoring"
SHARED = (
    "actor_rollout_ref.actor.fsdp_config.num_gpus_per_worker=0.4",
    *("actor_rollout_ref.rollout.sleep=true", "actor_rollout_ref.rollout.num_gpus=0.3"),
    *(f"{SCORING}.sleep=true", f"{SCORING}.num_gpus=0.3", f"{SCORING}.overlap=false"),
)


class Recorder:
    """Ranks or engines of a role, which write down what they are asked into one record."""

    machines = ("here",)
    size = 1

    def __init__(self, role: str, record: list[str]) -> None:
        self.role, self.record, self.engines = role, record, [self]

    def call(self, method: str, *arguments: Any) -> Any:
        what = f" {arguments[0]}" if method == "wake_up" else ""
        self.record.append(f"{self.role} {method}{what}")
        return SimpleNamespace(references=["there"], results=list, result=dict)

    def call_each(self, method: str, arguments: Any) -> Any:
        return self.call(method)


class Engines(Recorder):
    def call(self, method: str, *arguments: Any) -> Any:
        found = super().call(method, *arguments)
        return [found] if method in ("sleep", "wake_up") else found

    def split(self, method: str, columns: Any, work: Any) -> Any:
        self.record.append(f"{self.role} {method}")
        return SimpleNamespace(group=self, parts=[], results=lambda instead=None: [])


def workers_of(config: RefblendConfig) -> tuple[WorkerSet, list[str]]:
    record: list[str] = []
    none = cast("Any", None)
    workers = WorkerSet(config, none, RestartBudget(1), print)
    workers.groups["actor"] = cast("Any", Recorder("actor", record))
    for role in ("rollout", "judge"):
        workers.engines[role] = cast("Any", Engines(role, record))
    return workers, record


def one_step(workers: WorkerSet, version: int) -> None:
    """The calls of a training step, as the trainer makes them."""
    sequences = Sequences([[1, 2]] * 2, [[3], [4]])
    workers.generate([], version)
    pending = workers.judge_responses(["q"], ["r"], [1])
    assert pending is not None
    workers.judge_results(pending)
    actor = SimpleNamespace(name="actor", budget="b", settings=lambda c: SimpleNamespace(b=64))
    workers.forward(cast("Any", actor), "compute_log_prob", sequences)
    workers.push_weights(version + 1)


@pytest.fixture(autouse=True)
def no_ray(monkeypatch):
    """``ray.put`` would start a cluster."""
    monkeypatch.setattr(groups.ray, "put", lambda value: value)


def test_one_works_at_a_time_and_weights_wake_before_the_cache(tiny_config) -> None:
    workers, record = workers_of(tiny_config(*SHARED))
    workers.asleep |= {"rollout", "judge"}  # as each engine is left by its start
    one_step(workers, 0)
    push = ["actor pack_weights", "rollout load_weights"]
    waking = ["rollout wake_up ['weights']", *push, "rollout wake_up ['kv_cache']"]
    assert record == [
        *waking,
        "rollout generate",
        "rollout sleep",
        "judge wake_up None",
        "judge generate_quality_score",
        "judge sleep",
        "actor compute_log_prob",
        *waking,
    ]
    assert workers.asleep == {"judge"}


def test_nobody_sleeps_on_the_cpu_or_on_a_device_of_its_own(tiny_config) -> None:
    for gpus in (0, 1):
        own = (f"actor_rollout_ref.rollout.num_gpus={gpus}", f"{SCORING}.num_gpus={gpus}")
        workers, record = workers_of(tiny_config(*SHARED, *own))
        one_step(workers, 0)
        assert not [line for line in record if "sleep" in line or "wake" in line]


def test_vllm_s_own_interface_is_called() -> None:
    """By the signatures of the installed vLLM; level 2 drops the weights, which are pushed."""
    from vllm import LLM

    llm = create_autospec(LLM, instance=True)
    engine = VllmEngine.__new__(VllmEngine)
    engine._llm = llm
    for worker, level in ((RolloutWorker, 2), (JudgeWorker, 1)):
        llm.reset_mock()
        sleeper = worker.__new__(worker)
        sleeper.engine = engine
        sleeper.wake_up(["weights"])  # a fresh engine is awake
        sleeper.sleep()
        sleeper.sleep()
        sleeper.wake_up(["weights"])
        sleeper.wake_up(["kv_cache"])
        sleeper.wake_up(["kv_cache"])
        sleeper.sleep()
        sleeper.wake_up(None)
        assert llm.mock_calls == [
            call.sleep(level=level),
            call.wake_up(tags=["weights"]),
            call.wake_up(tags=["kv_cache"]),
            call.sleep(level=level),
            call.wake_up(tags=None),
        ]


def test_overlap_is_refused_beside_sleep(tiny_config) -> None:
    with pytest.raises(ConfigError, match=r"scoring\.overlap=true .* sleep take turns"):
        tiny_config(*SHARED, f"{SCORING}.overlap=true")

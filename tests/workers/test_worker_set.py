"""Calls of the controller: pushes of weights, engines that sleep."""

from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import call, create_autospec

import pytest

from refblend.config import RefblendConfig
from refblend.rollout.vllm_engine import VllmEngine
from refblend.workers import groups, worker_set
from refblend.workers.engine_workers import JudgeWorker, RolloutWorker
from refblend.workers.restarts import RestartBudget, WorkerDiedError
from refblend.workers.roles import ROLLOUT
from refblend.workers.types import Sequences
from refblend.workers.worker_set import WorkerSet


class Recorder:
    """Ranks or engines of a role, which only write down what they are asked."""

    size = 1

    def __init__(self, role: str, *nodes: str, record: list[str] | None = None) -> None:
        self.role = role
        self.nodes = nodes or ("here",)
        self.record = [] if record is None else record
        self.asked: list[Any] = []

    def call(self, method: str, *arguments: Any) -> Any:
        self.asked.append((method, *arguments))
        what = f" {arguments[0]}" if method == "wake_up" else ""
        self.record.append(f"{self.role} {method}{what}")
        references = [f"{method} of rank {i}" for i in range(2)]
        return SimpleNamespace(references=references, results=list, result=dict)

    def call_each(self, method: str, arguments: Any) -> Any:
        return self.call(method)


def no_workers(config: RefblendConfig) -> WorkerSet:
    return WorkerSet(config, cast("Any", None), RestartBudget(1), print)


@pytest.mark.parametrize(
    ("nodes", "asked", "received"),
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
def test_engines_elsewhere_get_the_bytes_and_others_the_memory(tiny_config, nodes, asked, received):
    actor = Recorder("actor", "here", "elsewhere")
    rollout = [Recorder("rollout", node) for node in nodes]
    workers = no_workers(tiny_config())
    workers.groups |= cast("Any", {"actor": [actor], "rollout": rollout})
    workers.push_weights(version=4)
    assert workers.version == 4
    assert actor.asked == [(method,) for method in asked]
    for engine, expected in zip(rollout, received, strict=True):
        assert engine.asked == [("load_weights", "pack_weights of rank 0", 4, expected)]


def test_the_death_of_the_actor_in_a_push_is_not_the_engine_s(tiny_config):
    """Ray raises it in the engine's call as well, which waits for what the actor packs."""

    class Lost(Recorder):
        def call(self, *asked: Any) -> Any:
            def die() -> None:
                raise WorkerDiedError(self.role, "gone")

            return SimpleNamespace(references=["packed"], results=die)

    workers = no_workers(tiny_config())
    workers.groups |= cast("Any", {role: [Lost(role)] for role in ("actor", "rollout")})
    with pytest.raises(WorkerDiedError, match="actor"):
        workers.push_weights(version=1)


SCORING = "algorithm.ref_quality_score.scoring"
SHARED = (
    "actor_rollout_ref.actor.fsdp_config.num_gpus_per_worker=0.4",
    *("actor_rollout_ref.rollout.sleep=true", "actor_rollout_ref.rollout.num_gpus=0.3"),
    *(f"{SCORING}.sleep=true", f"{SCORING}.num_gpus=0.3", f"{SCORING}.overlap=false"),
)


def workers_of(config: RefblendConfig) -> tuple[WorkerSet, list[str]]:
    record: list[str] = []
    workers = no_workers(config)
    for role in ("actor", "rollout", "judge"):
        workers.groups[role] = [cast("Any", Recorder(role, record=record))]
    return workers, record


def one_step(workers: WorkerSet, version: int) -> None:
    """The calls of a training step, as the trainer makes them."""
    sequences = Sequences([[1, 2]] * 2, [[3], [4]])
    workers.generate([], version)
    pending = workers.judge_responses(["q"], ["r"], [1])
    workers.judge_results(pending)
    actor = SimpleNamespace(name="actor", budget="b", settings=lambda c: SimpleNamespace(b=64))
    workers.forward(cast("Any", actor), "compute_log_prob", sequences)
    workers.push_weights(version + 1)


@pytest.fixture
def no_ray(monkeypatch):
    """``ray.put`` would start a cluster; engines write down what they are asked together."""

    def split(engines: Any, method: str, columns: Any, work: Any) -> Any:
        engines[0].record.append(f"{engines[0].role} {method}")
        return SimpleNamespace(parts=[], results=lambda instead=None: [])

    monkeypatch.setattr(groups.ray, "put", lambda value: value)
    monkeypatch.setattr(worker_set, "split", split)


def test_one_works_at_a_time_and_weights_wake_before_the_cache(tiny_config, no_ray):
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


@pytest.mark.parametrize(
    ("ranks", "pool", "together"),
    [(2, "global_pool", True), (1, "global_pool", False), (2, "judge_pool", False)],
)
def test_engines_that_cannot_share_a_gpu_start_together(
    tiny_config, monkeypatch, ranks, pool, together
):
    record: list[str] = []

    class Engine(Recorder):
        def __init__(self, role: Any, config: Any, places: Any, *more: Any) -> None:
            super().__init__(role.name, record=record)
            record.append("launch")

        def ready(self) -> None:
            record.append("ready")

    monkeypatch.setattr(worker_set, "WorkerGroup", Engine)
    fsdp, rollout = "actor_rollout_ref.actor.fsdp_config", "actor_rollout_ref.rollout"
    more = [f"{fsdp}.world_size={ranks}", f"{fsdp}.num_gpus_per_worker=0.6"]
    more += [f"{rollout}.num_engines=2", f"{rollout}.num_gpus=0.2", f"{SCORING}.num_gpus=0.2"]
    workers = no_workers(tiny_config(*SHARED, *more, f"{SCORING}.resource_pool={pool}"))
    workers.pools = cast("Any", SimpleNamespace(places=print))
    workers._launch(ROLLOUT, 1)
    one = ["launch", "ready", "rollout sleep"]
    assert record == ([word for word in one for _ in range(2)] if together else one * 2)
    assert workers.asleep == {"rollout"}


def test_nobody_sleeps_on_the_cpu_or_on_a_device_of_its_own(tiny_config, no_ray):
    for gpus in (0, 1):
        own = (f"actor_rollout_ref.rollout.num_gpus={gpus}", f"{SCORING}.num_gpus={gpus}")
        workers, record = workers_of(tiny_config(*SHARED, *own))
        one_step(workers, 0)
        assert not [line for line in record if "sleep" in line or "wake" in line]


def test_vllm_s_own_interface_is_called():
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


def test_a_judge_works_beside_the_actor_unless_it_sleeps(tiny_config, no_ray):
    own = (f"{SCORING}.num_gpus=1", f"{SCORING}.sleep=false", f"{SCORING}.overlap=true")
    workers, record = workers_of(tiny_config(*SHARED, *own))
    one_step(workers, 0)
    scored = record.index("judge generate_quality_score")
    assert "rollout sleep" in record[:scored]
    assert not [line for line in record if line in ("judge sleep", "judge wake_up None")]

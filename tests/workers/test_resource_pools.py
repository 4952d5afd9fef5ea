"""Which processes a run needs, and the preflight's message when the cluster is too small."""

import re
from pathlib import Path
from typing import Any

import pytest
import ray

from refblend.errors import ConfigError, ResourceError
from refblend.rollout.model_dir import count_parameters
from refblend.study.design.grid import resolve_arm
from refblend.study.design.spec import load_experiment, load_experiments
from refblend.study.design.workflow import gpus_to_train
from refblend.trainer.step_metrics import training_devices
from refblend.workers import pools as pools_module
from refblend.workers.cluster import ray_cluster
from refblend.workers.groups import WorkerProcess
from refblend.workers.placement import A_BIT, processes_of, totals
from refblend.workers.pools import ResourcePools, check_machine, check_resources
from refblend.workers.roles import ENGINE_BASE, GLOBAL_POOL, ROLES, TRAINER_BASE, roles_of

ROOT = Path(__file__).parents[2]
FSDP = "actor_rollout_ref.actor.fsdp_config"
JUDGE = "algorithm.ref_quality_score.scoring"
OWN_POOL = f"{JUDGE}.resource_pool=judge_pool"


@pytest.mark.parametrize(
    ("settings", "planned"),
    [
        ([], {GLOBAL_POOL: "actor rollout judge"}),
        (
            [
                "algorithm.adv_estimator=gae",
                "algorithm.use_kl_in_reward=true",
                f"{FSDP}.world_size=2",
            ],
            {GLOBAL_POOL: "actor actor rollout critic ref judge"},
        ),
        (
            ["actor_rollout_ref.rollout.num_engines=3", f"{JUDGE}.num_engines=2"],
            {GLOBAL_POOL: "actor rollout rollout rollout judge judge"},
        ),
        ([OWN_POOL], {GLOBAL_POOL: "actor rollout", "judge_pool": "judge"}),
        ([OWN_POOL, f"{JUDGE}.control=random"], {GLOBAL_POOL: "actor rollout"}),
        ([OWN_POOL, "algorithm.ref_quality_score.enable=false"], {GLOBAL_POOL: "actor rollout"}),
    ],
)
def test_every_role_has_its_processes(tiny_config, settings, planned):
    found = processes_of(tiny_config(*settings, "ray.cpus_per_worker=0.5"))
    roles = {n: " ".join(p.role for p in found if p.pool == n) for n in planned}
    assert roles == planned
    assert totals(found) == (0.5 * sum(len(pool.split()) for pool in planned.values()), 0.0)


def test_gpus_are_counted_a_worker_and_a_tensor_parallel_rank(tiny_config):
    config = tiny_config(
        f"{FSDP}.world_size=2",
        f"{FSDP}.num_gpus_per_worker=1",
        "actor_rollout_ref.rollout.num_gpus=1",
        "actor_rollout_ref.rollout.num_engines=2",
        "actor_rollout_ref.rollout.tensor_model_parallel_size=2",
        f"{JUDGE}.num_gpus=0.25",
    )
    assert totals(processes_of(config)) == (5.0, 7)
    large = tiny_config(f"{JUDGE}.tensor_model_parallel_size=4", f"{JUDGE}.num_gpus=1")
    assert totals(processes_of(large)) == (3.0, 4.0)
    assert training_devices(config) == 6, "the judge's is none of them"
    assert training_devices(tiny_config()) == 1, "on the CPU"
    leased = [gpus_to_train(tiny_config(*own)) for own in ([f"{JUDGE}.num_gpus=0.4"], [])]
    assert leased == [1, 0], "the judge's alone, too"


@pytest.mark.engine
@pytest.mark.parametrize(
    ("engine", "judge", "expected"),  # of 0.69 Ray makes 0.6899
    [(0.2, 0, ["", ""]), (0.2, 0.2, ["3", "5"]), (0.05, 0.04, ["3", "5"])],
)
def test_ray_puts_one_process_of_each_role_on_a_gpu_and_hides_gpus_from_others(
    tiny_config, monkeypatch, engine, judge, expected
):
    """Pretended GPUs: without any Ray would leave all of them to the judge, and by itself it
    would put both engines beside the first rank. Users of vLLM's own Ray executor export NOSET."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    monkeypatch.setenv("RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES", "1")
    rollout = "actor_rollout_ref.rollout"
    ranks = [f"{FSDP}.world_size=2", f"{FSDP}.num_gpus_per_worker=0.6"]
    engines = [f"{rollout}.num_engines=2", f"{rollout}.num_gpus={engine}"]
    judges = [f"{JUDGE}.num_engines=2", f"{JUDGE}.num_gpus={judge}"]
    config = tiny_config(*ranks, *engines, *judges, "ray.object_store_memory_mb=80")
    assert gpus_to_train(config) == 2
    seen = {}
    with ray_cluster(config.ray, *totals(processes_of(config))):
        pools, processes = ResourcePools(config), []
        for role in roles_of(config):
            for place in pools.places(role.name):
                how = {"num_cpus": place.process.cpus, "num_gpus": place.process.gpus}
                one = ray.remote(WorkerProcess).options(**how, scheduling_strategy=place.strategy)
                processes.append(one.remote())
                ray.get(processes[-1].start.remote("os:getenv", 1, "CUDA_VISIBLE_DEVICES"))
                answer, _ = processes[-1].call.remote("strip")
                seen.setdefault(role.name, []).append(ray.get(answer))
    assert {role: sorted(names) for role, names in seen.items()} == {
        "actor": ["3", "5"],
        "rollout": ["3", "5"],
        "judge": expected,
    }


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        ([f"{JUDGE}.num_gpus=1.5"], f"{JUDGE}.num_gpus: Ray gives a process a share of one GPU"),
        ([f"{FSDP}.num_gpus_per_worker=2.5"], f"{FSDP}.num_gpus_per_worker: Ray gives"),
        (
            ["actor_rollout_ref.rollout.tensor_model_parallel_size=2"],
            "takes a GPU for each rank, and actor_rollout_ref.rollout.num_gpus is 0",
        ),
        (
            [
                "actor_rollout_ref.rollout.tensor_model_parallel_size=2",
                "actor_rollout_ref.rollout.num_gpus=0.5",
            ],
            "is 0.5",
        ),
        ([f"{JUDGE}.tensor_model_parallel_size=2"], f"{JUDGE}.num_gpus is 0"),
    ],
)
@pytest.mark.parametrize("address", ["null", "1.2.3.4:5"])
def test_gpus_that_no_process_can_have_are_refused(tiny_config, overrides, told, address):
    with pytest.raises(ConfigError, match=re.escape(told)):
        check_machine(tiny_config(*overrides, f"ray.address={address}"))


def test_too_few_cpus_name_key_roles_and_numbers(tiny_config):
    with pytest.raises(ResourceError) as caught:
        check_resources(tiny_config(), {"CPU": 2.0})
    message = str(caught.value)
    assert "asks for 3 CPUs (1 × actor, 1 × rollout, 1 × judge) and the cluster has 2" in message
    assert "ray.cpus_per_worker" in message
    assert "ray.num_cpus" in message


def test_memory_counts_every_role_and_its_cache(tiny_config, tiny_model_dir):
    from transformers import AutoModelForCausalLM

    weights = AutoModelForCausalLM.from_pretrained(tiny_model_dir).num_parameters()
    assert count_parameters(tiny_model_dir, "a.key") == weights
    config = tiny_config(
        "algorithm.adv_estimator=gae",
        "algorithm.use_kl_in_reward=true",
        f"{FSDP}.world_size=2",
        "actor_rollout_ref.rollout.dtype=bfloat16",
        "actor_rollout_ref.rollout.kv_cache_memory_mb=4096",
        "ray.object_store_memory_mb=300",
        f"{JUDGE}.num_gpus=1",
    )
    assert {role.name: role.memory(config) for role in roles_of(config)} == {
        "rollout": ENGINE_BASE + 2 * weights + 4096 * 2**20,
        "actor": 2 * TRAINER_BASE + 16 * weights,
        "critic": TRAINER_BASE + 16 * weights,
        "ref": TRAINER_BASE + 4 * weights,
        "judge": ENGINE_BASE,
    }
    with pytest.raises(ResourceError, match=r"\(rollout 5\.0, .*, object store 0\.3\)") as caught:
        check_resources(config, {"CPU": 9.0, "GPU": 1.0, "memory": 2.0**30})
    assert "Change actor_rollout_ref.rollout.kv_cache_memory_mb" in caught.value.remedy
    on_gpus = [f"{FSDP}.num_gpus_per_worker=1", "actor_rollout_ref.rollout.num_gpus=1"]
    config = tiny_config(f"{FSDP}.world_size=2", *on_gpus)
    assert ROLES["actor"].memory(config) == 2 * TRAINER_BASE + 4 * weights, (
        "rank 0 alone reads the model"
    )
    colocated = ("algorithm.use_kl_in_reward=true", "actor_rollout_ref.ref.colocated=true")
    assert ROLES["actor"].memory(tiny_config(*colocated)) == TRAINER_BASE + 20 * weights


def test_a_judge_of_the_user_s_own_may_hold_no_model(tiny_config):
    config = tiny_config(f"{JUDGE}.kind=my_judges:LengthJudge", f"{JUDGE}.model_path=null")
    assert ROLES["judge"].memory(config) == TRAINER_BASE


GPU_ARMS = [
    (name, arm)
    for name, spec in load_experiments(ROOT / "params").items()
    if spec.milestone == "m2"
    for arm in spec.arms_of("gpu")
]


@pytest.mark.parametrize(("name", "arm"), GPU_ARMS)
@pytest.mark.parametrize("kl", ["false", "true"])
def test_every_arm_of_scale_gpu_fits_one_device_and_f_s_dedicated_two(name, arm, kl):
    spec = load_experiment(ROOT / "params" / "study" / f"{name}.yaml")
    overrides = spec.arms_of("gpu")[arm] | {"algorithm.use_kl_in_reward": kl == "true"}
    processes = processes_of(resolve_arm(overrides, "gpu", ROOT / "params"))
    assert totals(processes)[1] == (2 if arm.startswith("dedicated") else 1)


class Reserved:
    """A placement group that has its places on two nodes, or never gets them."""

    def __init__(self, bundles: list[dict[str, float]], **how: Any) -> None:
        self.bundles, self.how = bundles, how
        self.fits = all("missing" not in bundle for bundle in bundles)

    def wait(self, timeout_s: float) -> bool:
        self.waited = timeout_s
        return self.fits


@pytest.fixture
def reserved(monkeypatch: pytest.MonkeyPatch) -> list[Reserved]:
    """What Ray is asked for, on a cluster of two nodes with a resource and eight CPU slots."""
    asked: list[Reserved] = []

    def placement_group(bundles: Any, **how: Any) -> Reserved:
        asked.append(Reserved(bundles, **how))
        return asked[-1]

    there = {"CPU": 8.0, "node:10.0.0.1": 1.0, "node:10.0.0.2": 1.0, "judges": 1.0}
    there["node:__internal_head__"] = 1.0  # Ray's own mark of the first node
    monkeypatch.setattr(pools_module.ray, "cluster_resources", lambda: there)
    monkeypatch.setattr(pools_module, "placement_group", placement_group)
    monkeypatch.setattr(pools_module, "remove_placement_group", lambda group: None)
    monkeypatch.setattr(
        pools_module,
        "placement_group_table",
        lambda group: {"bundles_to_node_id": {i: "ba"[i % 2] for i in range(len(group.bundles))}},
    )
    return asked


def test_ray_is_told_nodes_and_strategy(tiny_config, reserved):
    ResourcePools(
        tiny_config(
            "algorithm.adv_estimator=gae",
            "algorithm.use_kl_in_reward=true",
            "actor_rollout_ref.actor.node=10.0.0.2",
            "actor_rollout_ref.rollout.node=judges",
            "actor_rollout_ref.ref.node=10.0.0.1",
            f"{JUDGE}.node=judges",
            "ray.pool_strategy.global_pool=spread",
        )
    )
    (group,) = reserved
    bit = A_BIT
    assert group.bundles == [
        {"CPU": 1.0, "node:10.0.0.2": bit},
        {"CPU": 1.0, "judges": bit},
        {"CPU": 1.0},
        {"CPU": 1.0, "node:10.0.0.1": bit},
        {"CPU": 1.0, "judges": bit},
    ]
    assert group.how == {"strategy": "SPREAD"}


def test_ranks_of_a_node_are_neighbours(tiny_config, reserved):
    places = ResourcePools(tiny_config(f"{FSDP}.world_size=2")).places("actor")
    assert [place.node for place in places] == ["a", "b"]


def test_an_engine_keeps_its_place_when_its_node_is_replaced(tiny_config, reserved, monkeypatch):
    pools = ResourcePools(tiny_config("actor_rollout_ref.rollout.num_engines=2"))
    before = [pools.places("rollout", number)[0].strategy for number in (0, 1)]
    nodes = {"bundles_to_node_id": dict(enumerate(["b", "a", "", "b"]))}  # "": lost
    monkeypatch.setattr(pools_module, "placement_group_table", lambda group: nodes)
    after = [pools.places("rollout", number)[0].strategy for number in (0, 1)]
    found = [[s.placement_group_bundle_index for s in known] for known in (before, after)]
    assert found == [[1, 2], [1, 2]]


def test_an_unknown_node_is_refused_before_ray_waits_for_it(tiny_config, reserved):
    with pytest.raises(ResourceError, match=r"judge is to run on node 10\.0\.0\.9") as caught:
        ResourcePools(tiny_config(f"{JUDGE}.node=10.0.0.9"))
    assert "Name one of 10.0.0.1, 10.0.0.2, or" in caught.value.remedy
    assert reserved == []


def test_a_run_that_has_lost_a_node_waits_for_it(tiny_config, reserved):
    config = tiny_config(f"{JUDGE}.node=missing", "ray.start_timeout_s=30")
    with pytest.raises(ResourceError, match="was not placed within 130 s"):
        ResourcePools(config, wait_s=100.0)
    assert reserved[0].waited == 130.0

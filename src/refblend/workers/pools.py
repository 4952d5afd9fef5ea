"""Resource pools: Ray placement groups, with a preflight instead of a hang.

``global_pool`` holds all workers; ``judge_pool`` can hold the judge alone (experiment F). Ray waits
forever for resources that the cluster does not have, so what is asked for is compared with what
there is first, node by node (:mod:`refblend.workers.placement`), and every wait has a deadline.
"""

import math
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import ray
from ray._private.accelerators import get_accelerator_manager_for_resource
from ray._private.utils import estimate_available_memory
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from refblend.config import RefblendConfig
from refblend.config.trainer import PoolStrategy
from refblend.errors import ConfigError, ResourceError
from refblend.lifecycle.devices import PRETENDED, device_memory
from refblend.lifecycle.stalls import stall_limit
from refblend.workers.gpu_memory import check_gpu_memory
from refblend.workers.nodes import alive_nodes
from refblend.workers.placement import GIB, Bundle, Node, Pools, place, refusal
from refblend.workers.restarts import WorkerDiedError
from refblend.workers.roles import (
    CRITIC,
    GLOBAL_POOL,
    MIB,
    REFERENCE,
    TRAINER_BASE,
    Role,
    roles_of,
    value_of,
)
from refblend.workers.run_files import RunFiles

NODE_ID = "ray.io/node-id"
"""Label that Ray gives to every node."""
POLL_S = 0.5


@dataclass(frozen=True)
class Place:
    """Where a worker process runs."""

    bundle: Bundle
    strategy: PlacementGroupSchedulingStrategy
    node: Node


@dataclass(frozen=True)
class MemoryNeed:
    """What one role needs on the host."""

    role: str
    size: float
    """Bytes, over all its processes."""
    key: str
    """The configuration key that decides it."""


def plan_pools(config: RefblendConfig) -> dict[str, list[Bundle]]:
    """The worker processes that a run needs, and the pool of each."""
    pools: dict[str, list[Bundle]] = {GLOBAL_POOL: []}
    for role in roles_of(config):
        asked = role.processes(config)
        node = getattr(role.settings(config), "node", None)
        bundle = Bundle(role.name, config.ray.cpus_per_worker, asked.gpus, role.gpu_key, node)
        pools.setdefault(role.pool(config), []).extend([bundle] * asked.count)
    return pools


def memory_needs(config: RefblendConfig) -> list[MemoryNeed]:
    """The estimated host memory of each role and of the object store, largest first."""
    key = "ray.object_store_memory_mb"
    needs = [MemoryNeed("object store", config.ray.object_store_memory_mb * MIB, key)]
    needs += [MemoryNeed(r.name, _memory(r, config), r.memory_key) for r in roles_of(config)]
    return sorted(needs, key=lambda need: -need.size)


def _memory(role: Role, config: RefblendConfig) -> float:
    """Bytes of a role's processes; those of an engine of the user's own may hold no model."""
    if role.engine_model is not None and value_of(config, role.engine_model) is None:
        return role.processes(config).count * TRAINER_BASE
    return role.memory(config)


def totals(pools: Pools) -> tuple[float, float]:
    """CPU slots and GPUs of all pools together."""
    bundles = [bundle for pool in pools.values() for bundle in pool]
    return sum(b.cpus for b in bundles), sum(b.gpus for b in bundles)


def check_resources(
    pools: Pools,
    needs: Sequence[MemoryNeed],
    available: Mapping[str, float],
    where: str = "cluster",
) -> None:
    """Refuse (ResourceError) what a run asks for beyond ``available`` (Ray's names; bytes)."""
    bundles = [bundle for pool in pools.values() for bundle in pool]
    roles = ", ".join(b.role for b in bundles)
    for name, wanted in zip(("CPU", "GPU"), totals(pools), strict=True):
        have = available.get(name, 0.0)
        if wanted > have + 1e-9:
            largest = max(bundles, key=lambda b: b.gpus)
            remedy = (
                "Lower ray.cpus_per_worker, raise ray.num_cpus, or use a larger cluster."
                if name == "CPU"
                else f"Lower {largest.key}, or use a cluster with more GPUs."
            )
            raise ResourceError(
                f"the run asks for {wanted:g} {name}s ({roles}) and the {where} has {have:g}",
                remedy,
            )
    memory, have = sum(need.size for need in needs), available.get("memory", math.inf)
    if memory > have:
        shares = ", ".join(f"{need.role} {need.size / GIB:.1f}" for need in needs)
        raise ResourceError(
            f"the run needs about {memory / GIB:.1f} GiB of memory ({shares}) and the {where} has "
            f"{have / GIB:.1f}",
            f"Change {needs[0].key} (a smaller value or model), or use a machine with more memory.",
        )


def check_machine(config: RefblendConfig) -> None:
    """Refuse what this machine lacks, where the run starts a cluster of its own.

    Ray reserves GPUs as it is told, and the workers would fail one by one.

    Raises:
        ConfigError: no process can have the GPUs that the configuration gives it.
        ResourceError: the machine has less than the run asks for.
    """
    pools = plan_pools(config)
    _check_gpus(config, pools)
    if config.ray.address is None:
        available = {
            "CPU": float(config.ray.num_cpus or math.inf),
            "GPU": float(_gpus()) if totals(pools)[1] else 0.0,
            "memory": float(estimate_available_memory()),
        }
        check_resources(pools, memory_needs(config), available, "machine")
        device = device_memory() if totals(pools)[1] else None
        if device is not None:
            check_gpu_memory(config, device)


def _check_gpus(config: RefblendConfig, pools: Pools) -> None:
    rollout, key = config.actor_rollout_ref.rollout, "actor_rollout_ref.rollout"
    ranks = rollout.tensor_model_parallel_size
    if ranks > 1 and rollout.num_gpus != 1:
        raise ConfigError(
            f"{key}.tensor_model_parallel_size={ranks} takes a GPU for each rank, and "
            f"{key}.num_gpus is {rollout.num_gpus:g}",
            f"Set {key}.num_gpus=1, or {key}.tensor_model_parallel_size=1.",
        )
    on_gpu = config.actor_rollout_ref.actor.fsdp_config.num_gpus_per_worker > 0
    for bundle in (bundle for pool in pools.values() for bundle in pool):
        if on_gpu and not bundle.gpus and bundle.role in (REFERENCE.name, CRITIC.name):
            raise ConfigError(
                f"{bundle.key}=0 puts {bundle.role} on the CPU, and the actor has a GPU",
                "Give it a share, such as 0.1, or turn off what needs it.",
            )
        if bundle.gpus > 1 and not bundle.gpus.is_integer():
            raise ConfigError(
                f"{bundle.key}: Ray gives a process a share of one GPU or whole ones, not "
                f"{bundle.gpus:g}",
                "Give a number below 1, or a whole one.",
            )


def _gpus() -> int:
    """GPUs of this machine that Ray would find; asked of its own code, which loads no torch."""
    if pretended := os.environ.get(PRETENDED):
        return len(pretended.split(","))
    manager = get_accelerator_manager_for_resource("GPU")
    visible = manager.get_current_process_visible_accelerator_ids()
    found = int(manager.get_current_node_num_accelerators())
    return found if visible is None else min(found, len(visible))


def with_memory(pools: Pools, needs: Sequence[MemoryNeed]) -> dict[str, list[Bundle]]:
    """The same bundles, each with its share of its role's memory."""
    sizes = {need.role: need.size for need in needs}
    counts = Counter(bundle.role for pool in pools.values() for bundle in pool)
    return {
        name: [replace(b, memory=sizes[b.role] / counts[b.role]) for b in pool]
        for name, pool in pools.items()
    }


class ResourcePools:
    """The placement groups of a run."""

    def __init__(self, config: RefblendConfig, wait_s: float = 0.0) -> None:
        """Place all pools, or ResourceError with what each node has.

        ``wait_s`` is how long to wait for nodes that the cluster lacks.
        """
        needs = memory_needs(config)
        self._bundles = with_memory(plan_pools(config), needs)
        self._strategies: dict[str, PoolStrategy] = config.ray.pool_strategy.model_dump()
        self._object_store = config.ray.object_store_memory_mb * MIB
        self._groups: dict[str, PlacementGroup] = {}
        self._nodes: dict[str, list[Node]] = {}
        if not wait_s and len(alive_nodes()) == 1:  # not where the others may come back
            check_resources(self._bundles, needs, ray.cluster_resources())
        timeout_s = config.ray.start_timeout_s
        self._place(timeout_s, wait_s)
        for name, nodes in self._nodes.items():
            self._reserve(name, nodes, timeout_s)

    def _place(self, timeout_s: float, wait_s: float) -> None:
        """Choose the node of every process; ResourceError if nodes are too small, or stay busy."""
        begin = time.monotonic()
        fits = False
        while True:
            waited = time.monotonic() - begin
            nodes = alive_nodes()
            if not fits and self._fit(nodes) is None:
                if waited >= wait_s:
                    raise refusal(self._bundles, self._strategies, nodes, self._object_store)
            else:
                fits = True
                # A cluster of one node decides for itself; of several, another run may use some.
                left = alive_nodes(left=True) if len(nodes) > 1 else nodes
                placed = self._fit(left)
                if placed is not None:
                    self._nodes = {n: [left[i] for i in where] for n, where in placed.items()}
                    return
                if waited >= timeout_s + wait_s:
                    error = refusal(self._bundles, self._strategies, left, self._object_store)
                    raise ResourceError(f"{error.reason} at present", error.remedy)
            time.sleep(POLL_S)

    def _fit(self, nodes: Sequence[Node]) -> dict[str, list[int]] | None:
        return place(self._bundles, self._strategies, nodes, self._object_store)

    def _reserve(self, name: str, nodes: Sequence[Node], timeout_s: float) -> None:
        """Reserve a pool's resources on the nodes that were chosen."""
        wanted = [bundle.resources for bundle in self._bundles[name]]
        strategy = self._strategies[name].upper()
        selector = [{NODE_ID: node.id} for node in nodes]
        self._groups[name] = placement_group(
            wanted, strategy=strategy, name="", bundle_label_selector=selector
        )
        with stall_limit(f"placing the resource pool {name}", timeout_s):
            placed = self._groups[name].wait(timeout_s)
        if not placed:
            self.remove()
            raise ResourceError(
                f"resource pool {name} ({wanted}) was not placed within {timeout_s:g} s",
                "Free the cluster's resources or raise ray.start_timeout_s.",
            )

    def files(self, config: RefblendConfig) -> RunFiles:
        """The run's files, once every node has those that it needs; errors of :class:`RunFiles`."""
        try:
            own = ray.get_runtime_context().get_node_id()
            return RunFiles(config, [node for nodes in self._nodes.values() for node in nodes], own)
        except BaseException:
            self.remove()
            raise

    def places(self, role: str) -> list[Place]:
        """The places of a role's processes, in rank order; WorkerDiedError if a node is gone.

        Nothing can start there; what is reserved elsewhere must be placed again, with the lost.
        """
        with stall_limit("looking for the nodes"):
            reachable = {node.id for node in alive_nodes()}
        for _, _, node in self._of(role):
            if node.id not in reachable:
                raise WorkerDiedError(role, f"its node {node.address} is gone")
        return [
            Place(
                self._bundles[name][i],
                PlacementGroupSchedulingStrategy(self._groups[name], i),
                node,
            )
            for name, i, node in self._of(role)
        ]

    def _of(self, role: str) -> list[tuple[str, int, Node]]:
        """Pool, position in it and node of a role's processes: those of a node are neighbours."""
        found = [
            (name, i, self._nodes[name][i])
            for name, bundles in self._bundles.items()
            for i, bundle in enumerate(bundles)
            if bundle.role == role
        ]
        order = list(dict.fromkeys(node.id for _, _, node in found))
        return sorted(found, key=lambda place: order.index(place[2].id))

    def remove(self) -> None:
        """Give all resources back."""
        with stall_limit("giving resources back"):
            for group in self._groups.values():
                remove_placement_group(group)
        self._groups.clear()

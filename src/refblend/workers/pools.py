"""Resource pools: Ray placement groups, with a preflight instead of a hang.

``global_pool`` holds all workers; ``judge_pool`` can hold the judge alone (experiment F). Ray waits
forever for resources that the cluster does not have, so what is asked for is compared with what
there is first, and every wait has a deadline.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import ray
import torch
from ray._private.utils import estimate_available_memory
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from refblend.config import RefblendConfig
from refblend.errors import ResourceError
from refblend.lifecycle.stalls import stall_limit
from refblend.workers.roles import GLOBAL_POOL, MIB, roles_of

GIB = 2**30


@dataclass(frozen=True)
class Bundle:
    """Resources of one worker process."""

    role: str
    cpus: float
    gpus: float
    key: str
    """The configuration key that asks for the GPUs."""
    node: str | None = None
    """Address of the node that it must be on; null: any."""

    @property
    def resources(self) -> dict[str, float]:
        """As Ray counts them; a sliver of a node's own resource ties a process to the node."""
        wanted = {"CPU": self.cpus, "GPU": self.gpus}
        wanted |= {f"node:{self.node}": 0.001} if self.node else {}
        return {kind: amount for kind, amount in wanted.items() if amount > 0}


Pools = Mapping[str, Sequence[Bundle]]
"""The bundles of each placement group, by its name."""


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
    """The estimated host memory of each role and of the object store, largest first.

    Raises:
        ModelError: a file of weights cannot be read.
    """
    key = "ray.object_store_memory_mb"
    needs = [MemoryNeed("object store", config.ray.object_store_memory_mb * MIB, key)]
    needs += [MemoryNeed(r.name, r.memory(config), r.memory_key) for r in roles_of(config)]
    return sorted(needs, key=lambda need: -need.size)


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
    """Compare what a run asks for with what there is (as Ray's ``cluster_resources()``; bytes).

    Raises:
        ResourceError: there is less ``where``; names the largest request and its key.
    """
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


def check_nodes(pools: Pools, available: Mapping[str, float]) -> None:
    """Refuse a node that the cluster does not have: Ray would wait for it.

    Raises:
        ResourceError: names the nodes that there are.
    """
    nodes = sorted(n.removeprefix("node:") for n in available if n.startswith("node:"))
    for bundle in (bundle for pool in pools.values() for bundle in pool):
        if bundle.node is not None and bundle.node not in nodes:
            raise ResourceError(
                f"the {bundle.role} is to run on node {bundle.node}, which is not in the cluster",
                f"Name one of {', '.join(n for n in nodes if n != '__internal_head__')}.",
            )


def check_machine(config: RefblendConfig) -> None:
    """Compare what a run asks for with this machine, where it starts a cluster of its own.

    Ray reserves GPUs as it is told, and the workers would fail one by one.

    Raises:
        ResourceError: the machine has less memory or fewer GPUs, or ``ray.num_cpus`` is too low.
    """
    if config.ray.address is None:
        available = {
            "CPU": float(config.ray.num_cpus or math.inf),
            "GPU": float(torch.cuda.device_count()),
            "memory": float(estimate_available_memory()),
        }
        check_resources(plan_pools(config), memory_needs(config), available, "machine")


class ResourcePools:
    """The placement groups of a run."""

    def __init__(self, config: RefblendConfig) -> None:
        self._bundles = plan_pools(config)
        available = ray.cluster_resources()
        check_resources(self._bundles, memory_needs(config), available)
        check_nodes(self._bundles, available)
        self._groups: dict[str, PlacementGroup] = {}
        timeout_s = config.ray.start_timeout_s
        for name, bundles in self._bundles.items():
            wanted = [bundle.resources for bundle in bundles]
            self._groups[name] = placement_group(wanted, strategy="PACK", name="")
            with stall_limit(f"placing the resource pool {name}", timeout_s):
                placed = self._groups[name].wait(timeout_s)
            if not placed:
                self.remove()
                raise ResourceError(
                    f"resource pool {name} ({wanted}) was not placed within {timeout_s:g} s",
                    "Free the cluster's resources or raise ray.start_timeout_s.",
                )

    def places(self, role: str) -> list[tuple[Bundle, PlacementGroupSchedulingStrategy]]:
        """The places of a role's processes, in rank order."""
        return [
            (bundle, PlacementGroupSchedulingStrategy(self._groups[name], index))
            for name, bundles in self._bundles.items()
            for index, bundle in enumerate(bundles)
            if bundle.role == role
        ]

    def remove(self) -> None:
        """Give all resources back."""
        with stall_limit("giving resources back"):
            for group in self._groups.values():
                remove_placement_group(group)
        self._groups.clear()

"""Resource pools: Ray placement groups, with a preflight instead of a hang.

Ray waits forever for resources that the cluster does not have. So requests are first compared with
the cluster's resources, and every wait has a deadline.
"""

import ipaddress
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import ray
from ray._private.utils import estimate_available_memory
from ray.util.placement_group import (
    PlacementGroup,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from refblend.config import RefblendConfig
from refblend.errors import ConfigError, ResourceError
from refblend.lifecycle.devices import device_sizes
from refblend.lifecycle.stalls import stall_limit
from refblend.workers.gpu_memory import GIB, check_gpu_memory, on_devices
from refblend.workers.roles import CRITIC, MIB, REFERENCE, roles_of

A_BIT = 0.001
"""Of a node's own resource, which ties a process to the node and takes nothing from others."""
HEAD = "node:__internal_head__"
"""Ray's mark of a cluster's first node; no node is named by it."""


@dataclass(frozen=True)
class Bundle:
    """What one worker process asks for."""

    role: str
    pool: str
    cpus: float
    gpus: float
    key: str
    """The configuration key that asks for the GPUs."""
    node: str | None = None
    """Address or custom resource of its node; null: any node."""

    @property
    def resources(self) -> dict[str, float]:
        """What Ray reserves."""
        found = {"CPU": self.cpus, "GPU": self.gpus}
        if self.node_resource:
            found[self.node_resource] = A_BIT
        return {name: amount for name, amount in found.items() if amount > 0}

    @property
    def node_resource(self) -> str | None:
        """The resource that only the wanted node has."""
        if self.node is None:
            return None
        try:
            return f"node:{ipaddress.ip_address(self.node)}"
        except ValueError:
            return self.node


@dataclass(frozen=True)
class Place:
    """Where a worker process runs."""

    bundle: Bundle
    strategy: PlacementGroupSchedulingStrategy
    node: str
    """Ray's id of the node."""


def plan_pools(config: RefblendConfig) -> list[Bundle]:
    """The worker processes that a run needs, and the pool of each."""
    bundles = []
    for role in roles_of(config):
        asked, cpus = role.processes(config), config.ray.cpus_per_worker
        node = getattr(role.settings(config), "node", None)
        bundle = Bundle(role.name, role.pool(config), cpus, asked.gpus, role.gpu_key, node)
        bundles += [bundle] * asked.count
    return bundles


def totals(bundles: Sequence[Bundle]) -> tuple[float, float]:
    """CPU slots and GPUs of all processes together."""
    return sum(b.cpus for b in bundles), sum(b.gpus for b in bundles)


def check_resources(
    config: RefblendConfig, available: Mapping[str, float], where: str = "cluster"
) -> None:
    """Refuse (ResourceError) what a run asks for beyond ``available`` (Ray's names; bytes)."""
    bundles = plan_pools(config)
    counts = Counter(bundle.role for bundle in bundles)
    roles = ", ".join(f"{count} × {role}" for role, count in counts.items())
    for name, wanted in zip(("CPU", "GPU"), totals(bundles), strict=True):
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
    sharing = sorted((b for b in bundles if 0 < b.gpus <= 1), key=lambda b: -b.gpus)
    devices = len(on_devices(sharing)) + sum(b.gpus for b in bundles if b.gpus > 1)
    if devices > (have := available.get("GPU", 0.0)):
        alike = Counter(f"{b.role} {b.gpus:g}" for b in sharing)
        raise ResourceError(
            f"the shares of a GPU ({', '.join(f'{n} × {s}' for s, n in alike.items())}) take "
            f"{devices:g} devices, for none is split over two, and the {where} has {have:g}",
            f"Lower one of {', '.join(dict.fromkeys(b.key for b in sharing))}.",
        )
    store = config.ray.object_store_memory_mb * MIB
    needs: list[tuple[str, float, str]] = [("object store", store, "ray.object_store_memory_mb")]
    needs += [(role.name, role.memory(config), role.memory_key) for role in roles_of(config)]
    needs.sort(key=lambda need: -need[1])
    memory, have = sum(size for _, size, _ in needs), available.get("memory", math.inf)
    if memory > have:
        shares = ", ".join(f"{name} {size / GIB:.1f}" for name, size, _ in needs)
        raise ResourceError(
            f"the run needs about {memory / GIB:.1f} GiB of memory ({shares}) and the {where} has "
            f"{have / GIB:.1f}",
            f"Change {needs[0][2]} (a smaller value or model), or use a machine with more memory.",
        )


def check_machine(config: RefblendConfig) -> None:
    """Refuse (ConfigError, ResourceError) a run of one machine which lacks what it needs."""
    bundles = plan_pools(config)
    _check_gpus(config, bundles)
    if config.ray.address is None:
        devices = device_sizes() if totals(bundles)[1] else []
        available = {
            "CPU": float(config.ray.num_cpus or math.inf),
            "GPU": float(len(devices)),
            "memory": float(estimate_available_memory()),
        }
        check_resources(config, available, "machine")
        if devices:
            check_gpu_memory(config, devices[0])


def _check_gpus(config: RefblendConfig, bundles: Sequence[Bundle]) -> None:
    for role in roles_of(config):
        engine, key = role.settings(config), role.section
        ranks = getattr(engine, "tensor_model_parallel_size", 1)
        if ranks > 1 and engine.num_gpus != 1:
            raise ConfigError(
                f"{key}.tensor_model_parallel_size={ranks} takes a GPU for each rank, and "
                f"{key}.num_gpus is {engine.num_gpus:g}",
                f"Set {key}.num_gpus=1, or {key}.tensor_model_parallel_size=1.",
            )
    on_gpu = config.actor_rollout_ref.actor.fsdp_config.num_gpus_per_worker > 0
    for bundle in bundles:
        if on_gpu and not bundle.gpus and bundle.role in (REFERENCE.name, CRITIC.name):
            colocate = ", set actor_rollout_ref.ref.colocated=true"
            other = colocate if bundle.role == REFERENCE.name else ""
            raise ConfigError(
                f"{bundle.key}=0 puts {bundle.role} on the CPU, and the actor has a GPU",
                f"Give it a share, such as 0.1{other}, or turn off what needs it.",
            )
        if bundle.gpus > 1 and not bundle.gpus.is_integer():
            raise ConfigError(
                f"{bundle.key}: Ray gives a process a share of one GPU or whole ones, not "
                f"{bundle.gpus:g}",
                "Give a number below 1, or a whole one.",
            )


class ResourcePools:
    """The placement groups of a run."""

    def __init__(self, config: RefblendConfig, wait_s: float = 0.0) -> None:
        """Reserve all pools, or ResourceError; ``wait_s`` is time for lost nodes to come back."""
        planned = plan_pools(config)
        self._groups: list[tuple[PlacementGroup, list[Bundle]]] = []
        if not wait_s:
            available = ray.cluster_resources()
            _check_nodes(planned, available)
            check_resources(config, available)
        timeout_s = config.ray.start_timeout_s + wait_s
        for name in dict.fromkeys(bundle.pool for bundle in planned):
            bundles = [bundle for bundle in planned if bundle.pool == name]
            wanted = [bundle.resources for bundle in bundles]
            strategy = getattr(config.ray.pool_strategy, name).upper()
            group = placement_group(wanted, strategy=strategy)
            self._groups.append((group, bundles))
            with stall_limit(f"placing the resource pool {name}", timeout_s):
                placed = group.wait(timeout_s)
            if not placed:
                self.remove()
                raise ResourceError(
                    f"resource pool {name} ({wanted}) was not placed within {timeout_s:g} s",
                    "Free the cluster's resources or raise ray.start_timeout_s.",
                )

    def places(self, role: str, number: int | None = None) -> list[Place]:
        """The places of a role's processes, in rank order; those of a node are neighbours.

        With ``number`` that process's place alone.
        """
        found = []
        for group, bundles in self._groups:
            with stall_limit("looking for the nodes"):
                nodes = placement_group_table(group)["bundles_to_node_id"]
            found += [
                Place(bundle, PlacementGroupSchedulingStrategy(group, i), nodes[i])
                for i, bundle in enumerate(bundles)
                if bundle.role == role
            ]
        found.sort(key=lambda place: place.node)
        return found if number is None else [found[number]]

    def remove(self) -> None:
        """Give all resources back."""
        with stall_limit("giving resources back"):
            for group, _ in self._groups:
                remove_placement_group(group)
        self._groups.clear()


def _check_nodes(bundles: Sequence[Bundle], available: Mapping[str, float]) -> None:
    for bundle in bundles:
        if bundle.node_resource and bundle.node_resource not in available:
            marks = [name for name in available if "node:" in name and name != HEAD]
            nodes = sorted(mark.removeprefix("node:") for mark in marks)
            raise ResourceError(
                f"the {bundle.role} is to run on node {bundle.node}, which is not in the cluster",
                f"Name one of {', '.join(nodes)}, or one's custom resource.",
            )

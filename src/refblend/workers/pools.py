"""Resource pools: Ray placement groups, with a preflight instead of a hang.

Ray waits forever for resources that the cluster does not have. So requests are first compared with
the cluster's resources, and every wait has a deadline.
"""

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
from refblend.workers.gpu_memory import GIB, check_gpu_memory
from refblend.workers.placement import Process, bundles_of, processes_of, resources_of, totals
from refblend.workers.roles import CRITIC, MIB, REFERENCE, roles_of

HEAD = "node:__internal_head__"
"""Ray's mark of a cluster's first node; no node is named by it."""


@dataclass(frozen=True)
class Place:
    """Where a worker process runs."""

    process: Process
    strategy: PlacementGroupSchedulingStrategy
    node: str
    """Ray's id of the node."""


def check_resources(
    config: RefblendConfig, available: Mapping[str, float], where: str = "cluster"
) -> None:
    """Refuse (ResourceError) what a run asks for beyond ``available`` (Ray's names; bytes)."""
    processes = processes_of(config)
    cpus, gpus = totals(processes)
    if cpus > (have := available.get("CPU", 0.0)) + 1e-9:
        counts = Counter(process.role for process in processes)
        roles = ", ".join(f"{count} × {role}" for role, count in counts.items())
        raise ResourceError(
            f"the run asks for {cpus:g} CPUs ({roles}) and the {where} has {have:g}",
            "Lower ray.cpus_per_worker, raise ray.num_cpus, or use a larger cluster.",
        )
    if gpus > (have := available.get("GPU", 0.0)):
        asking = [process for process in processes if process.gpus]
        alike = Counter(f"{process.role} {process.gpus:g}" for process in asking)
        listed = ", ".join(f"{number} × {share}" for share, number in alike.items())
        raise ResourceError(
            f"the run asks for {gpus} GPUs ({listed}; no share lies on two) and the {where} has "
            f"{have:g}",
            f"Lower {' or '.join(dict.fromkeys(p.key for p in asking))}, or use more GPUs.",
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
    processes = processes_of(config)
    _check_gpus(config, processes)
    if config.ray.address is None:
        devices = device_sizes() if totals(processes)[1] else []
        available = {
            "CPU": float(config.ray.num_cpus or math.inf),
            "GPU": float(len(devices)),
            "memory": float(estimate_available_memory()),
        }
        check_resources(config, available, "machine")
        if devices:
            check_gpu_memory(config, devices[0])


def _check_gpus(config: RefblendConfig, processes: Sequence[Process]) -> None:
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
    for process in processes:
        if on_gpu and not process.gpus and process.role in (REFERENCE.name, CRITIC.name):
            colocate = ", set actor_rollout_ref.ref.colocated=true"
            other = colocate if process.role == REFERENCE.name else ""
            raise ConfigError(
                f"{process.key}=0 puts {process.role} on the CPU, and the actor has a GPU",
                f"Give it a share, such as 0.1{other}, or turn off what needs it.",
            )
        if process.gpus > 1 and not process.gpus.is_integer():
            raise ConfigError(
                f"{process.key}: Ray gives a process a share of one GPU or whole ones, not "
                f"{process.gpus:g}",
                "Give a number below 1, or a whole one.",
            )


class ResourcePools:
    """The placement groups of a run."""

    def __init__(self, config: RefblendConfig, wait_s: float = 0.0) -> None:
        """Reserve all pools, or ResourceError; ``wait_s`` is time for lost nodes to come back."""
        planned = processes_of(config)
        self._groups: list[tuple[PlacementGroup, list[list[Process]]]] = []
        if not wait_s:
            available = ray.cluster_resources()
            _check_nodes(planned, available)
            check_resources(config, available)
        timeout_s = config.ray.start_timeout_s + wait_s
        together = bundles_of(planned)
        for name in dict.fromkeys(process.pool for process in planned):
            bundles = [bundle for bundle in together if bundle[0].pool == name]
            wanted = list(map(resources_of, bundles))
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

        With ``number`` that of one engine, which it keeps when its node is replaced.
        """
        found = []
        for group, bundles in self._groups:
            with stall_limit("looking for the nodes"):
                nodes = placement_group_table(group)["bundles_to_node_id"]
            found += [
                Place(process, PlacementGroupSchedulingStrategy(group, i), nodes[i])
                for i, bundle in enumerate(bundles)
                for process in bundle
                if process.role == role
            ]
        if number is not None:
            return [found[number]]
        return sorted(found, key=lambda place: place.node)

    def remove(self) -> None:
        """Give all resources back."""
        with stall_limit("giving resources back"):
            for group, _ in self._groups:
                remove_placement_group(group)
        self._groups.clear()


def _check_nodes(processes: Sequence[Process], available: Mapping[str, float]) -> None:
    for process in processes:
        if process.node_resource and process.node_resource not in available:
            marks = [name for name in available if "node:" in name and name != HEAD]
            nodes = sorted(mark.removeprefix("node:") for mark in marks)
            raise ResourceError(
                f"the {process.role} is to run on node {process.node}, which is not in the cluster",
                f"Name one of {', '.join(nodes)}, or one's custom resource.",
            )

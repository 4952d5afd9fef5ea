"""The worker processes of a run, and which of them share a GPU. Without Ray, which places them."""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from refblend.config import RefblendConfig
from refblend.workers.roles import roles_of

A_BIT = 0.001
"""Of a node's own resource, which ties a process to the node and takes nothing from others."""
HALF_A_UNIT = 0.00005
"""Ray counts in units of 0.0001 and drops the rest, so that 0.57 becomes 0.5699."""


@dataclass(frozen=True)
class Process:
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
    def node_resource(self) -> str | None:
        """The resource that only the wanted node has."""
        if self.node is None:
            return None
        try:
            return f"node:{ipaddress.ip_address(self.node)}"
        except ValueError:
            return self.node


def processes_of(config: RefblendConfig) -> list[Process]:
    """The worker processes that a run needs, role by role."""
    processes = []
    for role in roles_of(config):
        asked, cpus = role.processes(config), config.ray.cpus_per_worker
        node = getattr(role.settings(config), "node", None)
        process = Process(role.name, role.pool(config), cpus, asked.gpus, role.gpu_key, node)
        processes += [process] * asked.count
    return processes


def on_devices(processes: Sequence[Any]) -> list[list[Any]]:
    """What lies on each device, of anything with a ``role`` and ``gpus``; above 1, on several.

    The largest first; each where it fits and the fewest of its role are. Without GPUs: on none.
    """
    devices: list[list[Any]] = []
    for process in sorted((p for p in processes if p.gpus), key=lambda p: -p.gpus):
        fits = [d for d in devices if sum(other.gpus for other in d) + process.gpus <= 1 + 1e-9]
        if not fits:
            devices += (fits := [[]])
        min(fits, key=lambda d: [other.role for other in d].count(process.role)).append(process)
    return devices


def apart(processes: Sequence[Process], role: str) -> bool:
    """Whether no two processes of a role can share a GPU: in one pool, Ray keeps devices apart."""
    devices = on_devices(processes)
    places = {(process.pool, process.node) for device in devices for process in device}
    return len(places) == 1 and all([p.role for p in d].count(role) <= 1 for d in devices)


def totals(processes: Sequence[Process]) -> tuple[float, int]:
    """CPU slots and GPUs of all processes together; no share lies on two GPUs."""
    gpus = sum(max(1, int(device[0].gpus)) for device in on_devices(processes))
    return sum(process.cpus for process in processes), gpus


def bundles_of(processes: Sequence[Process]) -> list[list[Process]]:
    """What Ray places together: processes that share a GPU, of one pool and node; or one alone.

    Left to place every share by itself, Ray fills one GPU with engines before it takes the next.
    """
    bundles = [[process] for process in processes if not process.gpus]
    for device in on_devices(processes):
        for place in dict.fromkeys((p.pool, p.node) for p in device):
            bundles.append([p for p in device if (p.pool, p.node) == place])
    return bundles


def resources_of(bundle: Sequence[Process]) -> dict[str, float]:
    """What Ray is to reserve for a bundle."""
    sums = {"CPU": sum(p.cpus for p in bundle), "GPU": sum(p.gpus for p in bundle)}
    found = {name: round(amount, 4) for name, amount in sums.items() if amount}
    found |= {name: v + HALF_A_UNIT for name, v in found.items() if not v.is_integer()}
    return found | ({node: A_BIT} if (node := bundle[0].node_resource) else {})

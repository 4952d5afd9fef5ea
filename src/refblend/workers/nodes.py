"""The nodes of the cluster that this process is connected to."""

import math
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ray
from ray._private.state import available_resources_per_node
from ray.exceptions import GetTimeoutError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from refblend.workers.placement import Node

ANSWER_S = 30.0
"""A node that takes longer to start a process is not used."""
CONNECT_S = 3.0
"""A node that accepts no connection in this time is gone; Ray notices after half a minute."""
_BUILT_IN = ("CPU", "GPU", "memory", "object_store_memory", "node:", "accelerator_type:")


def alive_nodes(left: bool = False) -> list[Node]:
    """The reachable nodes, the driver's own first, then by address; ``left``: what is free."""
    here = ray.get_runtime_context().get_node_id()
    rest = available_resources_per_node() if left else {}
    nodes = []
    for found in ray.nodes():
        if not found["Alive"] or (found["NodeID"] != here and not _accepts(found)):
            continue
        total = found["Resources"]
        have = rest.get(found["NodeID"], {}) if left else total
        custom = frozenset(name for name in total if not name.startswith(_BUILT_IN))
        nodes.append(
            Node(
                id=found["NodeID"],
                address=found["NodeManagerAddress"],
                cpus=have.get("CPU", 0.0),
                gpus=have.get("GPU", 0.0),
                # Nobody reserves memory, so what is left is what there is.
                memory=total.get("memory", math.inf),
                object_store=total.get("object_store_memory", 0.0),
                labels=found["Labels"],
                custom=custom,
            )
        )
    return sorted(nodes, key=lambda node: (node.id != here, node.address, node.id))


def _accepts(node: Mapping[str, Any]) -> bool:
    """Whether the node manager that Ray knows at this node accepts a connection."""
    address = node["NodeManagerAddress"], node["NodeManagerPort"]
    try:
        socket.create_connection(address, timeout=CONNECT_S).close()
    except OSError:
        return False
    return True


def ask(
    nodes: Sequence[Node], question: Callable[..., Any], *arguments: Any, timeout_s: float
) -> dict[str, Any]:
    """Call a function on each node: the answers by node id, without late and lost ones."""
    task = ray.remote(question)
    asked = {}
    for node in nodes:
        place = NodeAffinitySchedulingStrategy(node.id, soft=False)
        asked[node.id] = task.options(num_cpus=0, max_retries=0, scheduling_strategy=place).remote(
            *arguments
        )
    answered, late = ray.wait(list(asked.values()), num_returns=len(asked), timeout=timeout_s)
    for reference in late:
        ray.cancel(reference, force=True)
    answers = {}
    for node_id, reference in asked.items():
        if reference in answered:
            try:
                answers[node_id] = ray.get(reference, timeout=timeout_s)
            except (RayError, GetTimeoutError):
                continue
    return answers

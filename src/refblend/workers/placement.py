"""Which process goes to which node: a pure function of what is asked and of what each node has.

Ray places one placement group after another and looks at numbers only when it is asked, so a plan
that does not fit shows as a wait without end. Here all pools are placed at once, before anything
starts; Ray is then told the node of every process.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from refblend.config.trainer import PoolStrategy
from refblend.errors import ResourceError

GIB = 2**30
SLACK = 1e-6
MAX_TRIES = 20_000
"""Positions that the search may try. Only plans that nearly fill a mixed cluster need more."""


@dataclass(frozen=True)
class Bundle:
    """What one worker process asks for."""

    role: str
    cpus: float
    gpus: float
    key: str
    """The configuration key that asks for the GPUs."""
    node: str | None = None
    """Address, custom resource or label (``key=value``) of its node; null: any node."""
    memory: float = 0.0
    """Bytes on the host."""

    @property
    def resources(self) -> dict[str, float]:
        """What Ray reserves."""
        return {k: v for k, v in (("CPU", self.cpus), ("GPU", self.gpus)) if v > 0}

    @property
    def demand(self) -> tuple[float, float, float]:
        """GPUs, CPU slots and memory: the scarcest first."""
        return self.gpus, self.cpus, self.memory


Pools = Mapping[str, Sequence[Bundle]]
"""The bundles of each placement group, by its name."""


@dataclass(frozen=True)
class Node:
    """What a node has, or has left."""

    id: str
    address: str
    cpus: float
    gpus: float = 0.0
    memory: float = 0.0
    """Bytes for processes."""
    object_store: float = 0.0
    """Bytes of shared memory."""
    labels: Mapping[str, str] = field(default_factory=dict)
    custom: frozenset[str] = frozenset()
    """Names of its custom resources."""

    def is_called(self, name: str | None) -> bool:
        """Whether it has this address, custom resource or label; None calls every node."""
        if name is None:
            return True
        key, equals, value = name.partition("=")
        if equals:
            return self.labels.get(key) == value
        return name == self.address or name in self.custom


@dataclass
class _Room:
    """What is left of a node while processes are placed."""

    node: Node
    cpus: float
    memory: float
    devices: list[float]
    """What is left of each GPU: Ray takes whole ones, or a share of a single one."""
    pools: dict[str, int] = field(default_factory=dict)
    """Processes of each pool."""

    @classmethod
    def of(cls, node: Node) -> "_Room":
        devices = [1.0] * int(node.gpus + SLACK)
        share = node.gpus - len(devices)
        return cls(node, node.cpus, node.memory, devices + [share] * (share > SLACK))

    def take(self, bundle: Bundle, pool: str) -> list[int] | None:
        """Reserve it and return the devices it got; None where there is no room."""
        fits = bundle.cpus <= self.cpus + SLACK and bundle.memory <= self.memory + SLACK
        devices = self._devices(bundle.gpus) if fits else None
        if devices is not None:
            self._change(bundle, pool, devices, 1)
        return devices

    def give_back(self, bundle: Bundle, pool: str, devices: list[int]) -> None:
        """Undo :meth:`take`."""
        self._change(bundle, pool, devices, -1)

    def _devices(self, gpus: float) -> list[int] | None:
        if gpus <= SLACK:
            return []
        if gpus < 1:  # the fullest device that still has room
            found = [i for i, left in enumerate(self.devices) if left + SLACK >= gpus]
            return [min(found, key=lambda i: self.devices[i])] if found else None
        whole = [i for i, left in enumerate(self.devices) if left + SLACK >= 1]
        count = round(gpus)
        return whole[:count] if len(whole) >= count else None

    def _change(self, bundle: Bundle, pool: str, devices: list[int], sign: int) -> None:
        self.cpus -= sign * bundle.cpus
        self.memory -= sign * bundle.memory
        for device in devices:
            self.devices[device] -= sign * min(1.0, bundle.gpus)
        self.pools[pool] = self.pools.get(pool, 0) + sign

    def state(self, pool: str, bundle: Bundle) -> tuple[object, ...]:
        """Nodes of one state are the same for a process."""
        devices = tuple(sorted(round(left, 6) for left in self.devices))
        called = self.node.is_called(bundle.node)
        # Processes of any pool count: a later one of a strict pool may need them together.
        return (round(self.cpus, 6), round(self.memory), devices, called, str(self.pools))


def place(
    pools: Pools,
    strategies: Mapping[str, PoolStrategy],
    nodes: Sequence[Node],
    object_store: float = 0.0,
) -> dict[str, list[int]] | None:
    """A node for every process, so that all fit at once.

    Args:
        pools: what is asked.
        strategies: of each pool: ``pack`` fills one node after another, ``spread`` takes the node
            with the fewest processes of the pool, ``strict_pack`` wants one node for all.
        nodes: what there is; of equally good ones the first is taken.
        object_store: bytes; nodes with a smaller object store are not used.

    Returns:
        For each pool the index of each process's node, in the pool's order; the processes of one
        kind stand node by node, so that neighbouring ranks are near one another. None when
        no placement was found.
    """
    usable = [i for i, node in enumerate(nodes) if node.object_store + SLACK >= object_store]
    rooms = [_Room.of(nodes[i]) for i in usable]
    asked = [(name, i, bundle) for name, pool in pools.items() for i, bundle in enumerate(pool)]
    # What has the fewest places to go first, then the largest.
    asked.sort(key=lambda item: _urgency(item[2], strategies[item[0]]))
    found = _search(asked, strategies, rooms)
    if found is None:
        return None
    placed: dict[str, list[int]] = {name: [0] * len(pool) for name, pool in pools.items()}
    for (name, i, _), node in zip(asked, found, strict=True):
        placed[name][i] = usable[node]
    return {name: _by_node(pools[name], where) for name, where in placed.items()}


def _urgency(bundle: Bundle, strategy: PoolStrategy) -> tuple[object, ...]:
    largest_first = tuple(-amount for amount in bundle.demand)
    return (bundle.node is None, strategy != "strict_pack", *largest_first, bundle.role)


def _search(
    asked: Sequence[tuple[str, int, Bundle]],
    strategies: Mapping[str, PoolStrategy],
    rooms: Sequence[_Room],
) -> list[int] | None:
    """Depth first, with an explicit stack: a cluster may have more processes than Python frames."""
    taken: list[tuple[int, list[int]]] = []
    choices = [_choices(*asked[0], strategies, rooms)] if asked else []
    for _ in range(MAX_TRIES):
        if len(taken) == len(asked):
            return [node for node, _ in taken]
        pool, _, bundle = asked[len(taken)]
        node = next(choices[-1], None)
        if node is None:
            choices.pop()
            if not taken:
                return None
            node, devices = taken.pop()
            pool, _, bundle = asked[len(taken)]
            rooms[node].give_back(bundle, pool, devices)
            continue
        found = rooms[node].take(bundle, pool)
        if found is not None:
            taken.append((node, found))
            if len(taken) < len(asked):
                choices.append(_choices(*asked[len(taken)], strategies, rooms))
    return None


def _choices(
    pool: str,
    _index: int,
    bundle: Bundle,
    strategies: Mapping[str, PoolStrategy],
    rooms: Sequence[_Room],
) -> Iterator[int]:
    """The nodes to try for a process, the best first; of those in one state only the first."""
    strategy = strategies[pool]
    nodes = [i for i, room in enumerate(rooms) if room.node.is_called(bundle.node)]
    used = {i: rooms[i].pools.get(pool, 0) for i in nodes}
    if strategy == "strict_pack" and any(room.pools.get(pool, 0) for room in rooms):
        nodes = [i for i in nodes if used[i]]
    nodes.sort(key=lambda i: used[i] if strategy == "spread" else -(used[i] > 0))
    seen = set()
    for i in nodes:
        state = rooms[i].state(pool, bundle)
        if state not in seen:
            seen.add(state)
            yield i


def _by_node(pool: Sequence[Bundle], where: Sequence[int]) -> list[int]:
    """Equal processes in the order of their nodes."""
    result = list(where)
    order = sorted(range(len(pool)), key=lambda i: (str(pool[i]), i))
    for _, group in groupby(order, key=lambda i: str(pool[i])):
        same = list(group)
        for i, node in zip(same, sorted(where[i] for i in same), strict=True):
            result[i] = node
    return result


def refusal(
    pools: Pools,
    strategies: Mapping[str, PoolStrategy],
    nodes: Sequence[Node],
    object_store: float = 0.0,
) -> ResourceError:
    """The error for a plan that does not fit: what is asked, and what each node has."""
    names = sorted({node.address for node in nodes})
    shown = table(pools, strategies, nodes, object_store)
    for bundle in (bundle for pool in pools.values() for bundle in pool):
        if not any(node.is_called(bundle.node) for node in nodes):
            return ResourceError(
                f"the {bundle.role} is to run on node {bundle.node}, which is not in the cluster",
                f"Name one of {', '.join(names)}, or a custom resource or label (key=value) of "
                f"one.\n{shown}",
            )
    return ResourceError(
        f"the run's processes do not fit the {len(nodes)} nodes of the cluster",
        "Lower what is asked, choose other nodes or strategies (ray.pool_strategy), or add nodes."
        f"\n{shown}",
    )


def table(
    pools: Pools,
    strategies: Mapping[str, PoolStrategy],
    nodes: Sequence[Node],
    object_store: float,
) -> str:
    """What each node has and what is asked, as lines of equal columns."""
    head = ("node", "CPUs", "GPUs", "memory GiB", "object store GiB", "labels, resources")
    rows = [head]
    for node in nodes:
        own = [f"{k}={v}" for k, v in sorted(node.labels.items()) if not k.startswith("ray.io/")]
        amounts = (_gib(node.memory), _gib(node.object_store))
        names = ", ".join([*own, *sorted(node.custom)])
        rows.append((node.address, f"{node.cpus:g}", f"{node.gpus:g}", *amounts, names))
    rows.append(("asked of each", "", "", "", _gib(object_store), "pool (strategy), node"))
    for name, pool in pools.items():
        for bundle in dict.fromkeys(pool):
            count = f"{pool.count(bundle)} x {bundle.role}"
            where = f"{name} ({strategies[name]}), {bundle.node or 'any node'}"
            cpus, gpus = f"{bundle.cpus:g}", f"{bundle.gpus:g}"
            rows.append((count, cpus, gpus, _gib(bundle.memory), "", where))
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    padded = ("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in padded)


def _gib(size: float) -> str:
    return f"{size / GIB:.1f}"

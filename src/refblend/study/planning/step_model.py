"""One training step as a graph of tasks on devices, played through event by event.

A discrete-event model, pure: costs, places and bandwidths in, seconds out. Tasks that share a
device slow one another down (processor sharing): with n of them at once each gets capacity / n of
it, and never more than 1. The step is that of ``RayPPOTrainer.train_step``: generation, then judge
and log-prob passes side by side, then the updates, then the push of the weights.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

STAGES = {
    "gen": "rollout",
    "ref_quality_score": "judge",
    "old_log_prob": "actor",
    "ref": "ref",
    "values": "critic",
    "update_critic": "critic",
    "update_actor": "actor",
}
"""The stages that a role works in, by their names in ``timing_s/*``, in their order."""
SCORING = ("ref_quality_score", "old_log_prob", "ref", "values")
"""Launched together once the responses are there."""
ENGINES = ("rollout", "judge")
"""Roles whose work is dealt out by prompt; the others split it by row."""
NETWORK = "network"
"""The device that carries weights to other nodes: one sender."""
ROUNDING = 1e-9


@dataclass(frozen=True)
class Task:
    """Work that begins when other tasks have ended."""

    name: str
    seconds: float
    """On a device that it has for itself."""
    device: str | None = None
    """None: time that passes, whatever else happens."""
    after: tuple[str, ...] = ()
    role: str | None = None
    """Whose process is busy meanwhile."""


@dataclass(frozen=True)
class Interval:
    """When a task ran, in seconds from the start of the step."""

    start: float
    end: float


def simulate(tasks: Sequence[Task], capacity: Mapping[str, float]) -> dict[str, Interval]:
    """Play the tasks through; a device that ``capacity`` does not name has 1.

    Raises:
        ValueError: tasks wait for one another, or for one that does not exist.
    """
    by_name = {task.name: task for task in tasks}
    missing = {task.name: len(task.after) for task in tasks}
    followers: dict[str, list[str]] = defaultdict(list)
    for task in tasks:
        for name in task.after:
            followers[name].append(task.name)
    left = {task.name: task.seconds for task in tasks if not task.after}
    started, done, now = dict.fromkeys(left, 0.0), dict[str, Interval](), 0.0
    while left:
        running = Counter(by_name[name].device for name in left)
        rates = {d: min(1.0, capacity.get(d, 1.0) / n) if d else 1.0 for d, n in running.items()}
        rate = {name: rates[by_name[name].device] for name in left}
        passed = min(left[name] / rate[name] for name in left)
        now += passed
        left = {name: left[name] - passed * rate[name] for name in left}
        for name in [n for n in left if left[n] <= ROUNDING * max(1.0, by_name[n].seconds)]:
            del left[name]
            done[name] = Interval(started[name], now)
            for follower in followers[name]:
                missing[follower] -= 1
                if missing[follower] == 0:
                    left[follower], started[follower] = by_name[follower].seconds, now
    if len(done) < len(tasks):
        raise ValueError(f"never begin: {sorted(missing.keys() - done.keys())[:5]}")
    return done


@dataclass(frozen=True)
class StageCost:
    """Seconds that one process with a device of its own takes for a number of prompts."""

    per_prompt: float
    fixed: float = 0.0
    """Whatever the number of prompts: what further processes do not shorten."""

    def seconds(self, prompts: float) -> float:
        """For a share of the batch."""
        return self.fixed + self.per_prompt * prompts


@dataclass(frozen=True)
class StepCosts:
    """What a step costs; the stages that it has are the keys of ``stages``."""

    stages: Mapping[str, StageCost]
    driver: StageCost
    """Between the stages: rewards, advantages, what is sent to workers."""
    push: float
    """Seconds of a push of the weights to an engine on the same node."""
    prompts: int
    responses: int
    """Of each prompt."""
    updates: int = 1
    """Optimiser steps."""
    weights_gb: float = 0.0


@dataclass(frozen=True)
class Place:
    """Where a process runs."""

    node: int
    device: str


@dataclass(frozen=True)
class Network:
    """Bandwidths in GB/s: assumed, not measured."""

    inside: float = 100.0
    """Between the devices of a node."""
    between: float = 12.5
    """Between nodes, of each."""


Layout = Mapping[str, Sequence[Place]]
"""The places of each role's processes."""


def shares(costs: StepCosts, stage: str, processes: int) -> list[float]:
    """The prompts of each process: engines get whole prompts, ranks rows of every mini-batch."""
    parts = costs.updates if stage.startswith("update") else 1
    whole = STAGES[stage] in ENGINES
    units = costs.prompts if whole else costs.prompts * costs.responses
    each, more = divmod(math.ceil(units / parts), processes)
    counts = [each + (k < more) for k in range(processes)]
    return [count * parts / (1 if whole else costs.responses) for count in counts]


def exchange_seconds(costs: StepCosts, stage: str, places: Sequence[Place], net: Network) -> float:
    """What the ranks of a stage send: parameters sharded inside nodes, replicated across (HSDP).

    A pass gathers the parameters inside each node. An optimiser step gathers them twice, scatters
    the gradients once, and sums these over the nodes by a ring, which sends 2 (N - 1) / N of them.
    """
    if STAGES[stage] in ENGINES:
        return 0.0
    nodes = Counter(place.node for place in places)
    ranks = max(nodes.values())
    inside = costs.weights_gb * (ranks - 1) / ranks / net.inside
    across = 2 * costs.weights_gb * (len(nodes) - 1) / len(nodes) / net.between
    return costs.updates * (3 * inside + across) if stage.startswith("update") else inside


def step_tasks(costs: StepCosts, layout: Layout, net: Network) -> list[Task]:
    """The tasks of a step; the end of each stage is a task with the stage's name."""
    tasks: list[Task] = []

    def add(stage: str, *after: str) -> None:
        places, role = layout[STAGES[stage]], STAGES[stage]
        own = [
            Task(f"{stage}/{k}", costs.stages[stage].seconds(share), place.device, after, role)
            for k, (place, share) in enumerate(
                zip(places, shares(costs, stage, len(places)), strict=True)
            )
            if share
        ]
        sent = exchange_seconds(costs, stage, places, net)
        tasks.extend([*own, Task(stage, sent, after=tuple(task.name for task in own))])

    add("gen")
    scoring = [stage for stage in SCORING if stage in costs.stages]
    for stage in scoring:
        add(stage, "gen")
    tasks.append(Task("driver", costs.driver.seconds(costs.prompts), after=("gen", *scoring)))
    last = "driver"
    for stage in ("update_critic", "update_actor"):
        if stage in costs.stages:
            add(stage, last)
            last = stage
    return tasks + _push(costs, layout, net, last)


def _push(costs: StepCosts, layout: Layout, net: Network, after: str) -> list[Task]:
    """Once over the network to each further node with engines, and then into every engine."""
    home, engines = layout["actor"][0].node, layout["rollout"]
    far = sorted({place.node for place in engines} - {home})
    transfer = costs.weights_gb / net.between
    sent = [Task(f"send/{node}", transfer, NETWORK, (after,)) for node in far]
    loads = [
        Task(
            f"update_weights/{k}",
            costs.push,
            place.device,
            (after if place.node == home else f"send/{place.node}",),
            "rollout",
        )
        for k, place in enumerate(engines)
    ]
    return [*sent, *loads, Task("update_weights", 0.0, after=tuple(t.name for t in loads))]


@dataclass(frozen=True)
class Prediction:
    """What the model says of a step."""

    seconds: float
    ends: Mapping[str, float]
    """When each stage ends, in seconds from the start of the step."""
    idle: Mapping[str, float]
    """Share of the step in which a process of the role has nothing to do, mean over them."""
    devices_idle: float
    """Share of all devices' time in which nothing runs on them."""


def predict(
    costs: StepCosts, layout: Layout, net: Network, capacity: Mapping[str, float] | None = None
) -> Prediction:
    """Simulate a step. ``capacity`` names devices of more or less than 1, such as pooled cores."""
    capacity = capacity or {}
    tasks = step_tasks(costs, layout, net)
    found = simulate(tasks, capacity)
    end = found["update_weights"].end
    busy: dict[str, float] = defaultdict(float)
    work = 0.0
    for task in tasks:
        if task.role:
            busy[task.role] += found[task.name].end - found[task.name].start
            work += task.seconds
    devices = {place.device for places in layout.values() for place in places}
    room = sum(capacity.get(device, 1.0) for device in devices)
    return Prediction(
        seconds=end,
        ends={name: when.end for name, when in found.items() if "/" not in name},
        idle={role: 1 - busy[role] / (end * len(places)) for role, places in layout.items()},
        devices_idle=1 - work / (room * end),
    )

"""``refblend plan-step``: how long a training step takes on a cluster that is not there yet.

The model plays the phases of ``RayPPOTrainer.train_step`` one after another: generation, judge and
log-prob passes side by side, the driver, the updates, the push of the weights. Processes that share
a device slow one another down (processor sharing): n of them get capacity / n each, and at most 1.
Costs come from finished runs; bandwidths are assumed.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

SCORING = ("ref_quality_score", "old_log_prob", "ref", "values")
"""Stages that begin together once the responses are there."""
STAGES = {
    "gen": "rollout",
    "ref_quality_score": "judge",
    "old_log_prob": "actor",
    "ref": "ref",
    "values": "critic",
    "update_critic": "critic",
    "update_actor": "actor",
}
"""The role that works in each stage; the names are those of ``timing_s/*``."""
ENGINES = ("rollout", "judge")
"""Roles whose work is dealt out by prompt; the others split it by row."""
ROLES_APART = {"co-located": (), "engines apart": ("rollout",), "dedicated": ("rollout", "judge")}
"""The kinds of layouts: which engines have devices of their own. All others share the rest."""
SHARES = 16
"""The search tries this many sizes of a role's part of the cluster."""


@dataclass(frozen=True)
class StageCost:
    """Seconds that one process with a device of its own takes."""

    per_prompt: float
    fixed: float = 0.0
    """Whatever the number of prompts: more processes do not shorten it."""

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
    """Per prompt."""
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


@dataclass(frozen=True)
class StepPlan:
    """The best layout of one kind on a number of nodes."""

    nodes: int
    devices: int
    """Of all nodes."""
    placement: str
    """A key of :data:`ROLES_APART`."""
    processes: Mapping[str, int]
    """By role."""
    prediction: Prediction
    best: bool = False
    """Whether no other kind takes less time on these nodes."""


def shared_ends(works: Sequence[float], capacity: float = 1.0) -> list[float]:
    """When works that begin together on one device end, in seconds.

    >>> shared_ends([1.0, 3.0])
    [2.0, 4.0]
    """
    ends, now, before = [0.0] * len(works), 0.0, 0.0
    for done, k in enumerate(sorted(range(len(works)), key=works.__getitem__)):
        now += (works[k] - before) / min(1.0, capacity / (len(works) - done))
        ends[k], before = now, works[k]
    return ends


def shares(costs: StepCosts, stage: str, processes: int) -> list[float]:
    """The prompts of each process: engines get whole prompts, ranks rows of every mini-batch."""
    parts = costs.updates if stage.startswith("update") else 1
    rows = 1 if STAGES[stage] in ENGINES else costs.responses
    each, more = divmod(math.ceil(costs.prompts * rows / parts), processes)
    return [(each + (k < more)) * parts / rows for k in range(processes)]


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


@dataclass(frozen=True)
class _Work:
    stage: str
    role: str
    device: str | None
    """None: time that passes, whatever else happens."""
    seconds: float
    """On a device that it has for itself."""
    sends: float = 0.0
    """Seconds of exchange with other ranks when all of them are done."""


def _phases(costs: StepCosts, layout: Layout, net: Network) -> Iterator[list[_Work]]:
    """The work of each phase; a phase begins when the one before has ended."""
    for phase in (("gen",), SCORING, ("driver",), ("update_critic",), ("update_actor",)):
        if phase == ("driver",):
            yield [_Work("driver", "driver", None, costs.driver.seconds(costs.prompts))]
        works = []
        for stage in [stage for stage in phase if stage in costs.stages]:
            places, cost = layout[STAGES[stage]], costs.stages[stage]
            sends = exchange_seconds(costs, stage, places, net)
            works += [
                _Work(stage, STAGES[stage], place.device, cost.seconds(share), sends=sends)
                for place, share in zip(places, shares(costs, stage, len(places)), strict=True)
                if share
            ]
        yield works
    # One sender serves every further node; then the engines there load the weights.
    home, engines = layout["actor"][0].node, layout["rollout"]
    far = {place.node for place in engines} - {home}
    sent = len(far) * costs.weights_gb / net.between
    yield [
        _Work("update_weights", "rollout", at.device, costs.push, sent if at.node in far else 0.0)
        for at in engines
    ]


def predict(
    costs: StepCosts, layout: Layout, net: Network, capacity: Mapping[str, float] | None = None
) -> Prediction:
    """Play a step through; a device that ``capacity`` does not name has 1."""
    capacity = capacity or {}
    ends: dict[str, float] = {}
    busy: dict[str, float] = defaultdict(float)
    now = done = 0.0
    for phase in _phases(costs, layout, net):
        together: dict[str | None, list[_Work]] = defaultdict(list)
        for work in phase:
            together[work.device].append(work)
        for device, works in together.items():
            room = capacity.get(device, 1.0) if device else math.inf
            took_each = shared_ends([work.seconds for work in works], room)
            for work, took in zip(works, took_each, strict=True):
                end = now + took + work.sends
                ends[work.stage] = max(ends.get(work.stage, 0.0), end)
                busy[work.role] += took
                done += work.seconds if device else 0.0
        now = max(ends.values())
    devices = {place.device for places in layout.values() for place in places}
    room = sum(capacity.get(device, 1.0) for device in devices)
    return Prediction(
        seconds=now,
        ends=ends,
        idle={role: 1 - busy[role] / (now * len(places)) for role, places in layout.items()},
        devices_idle=1 - done / (room * now),
    )


def plan_step(costs: StepCosts, nodes: int, per_node: int, net: Network) -> list[StepPlan]:
    """The best layout of every kind, in the order of :data:`ROLES_APART`."""
    best: dict[str, StepPlan] = {}
    for kind, counts in _candidates(costs, nodes * per_node):
        plan = _tried(costs, (nodes, per_node), kind, counts, net)
        if kind not in best or plan.prediction.seconds < best[kind].prediction.seconds:
            best[kind] = plan
    least = min(best.values(), key=lambda plan: plan.prediction.seconds)
    return [replace(plan, best=plan is least) for plan in best.values()]


def _candidates(costs: StepCosts, devices: int) -> Iterator[tuple[str, dict[str, int]]]:
    """Kinds of layouts, with the number of devices of each role apart."""
    parts = min(devices, SHARES)
    engines = sorted({min(devices * k // parts, costs.prompts) for k in range(1, parts)})
    for kind, apart in ROLES_APART.items():
        if "judge" in apart and "ref_quality_score" not in costs.stages:
            continue
        for counts in product(engines, repeat=len(apart)):
            if sum(counts) < devices:
                yield kind, dict(zip(apart, counts, strict=True))


def _tried(
    costs: StepCosts, size: tuple[int, int], kind: str, counts: Mapping[str, int], net: Network
) -> StepPlan:
    """Training ranks from the first device on, the roles apart behind them."""
    nodes, per_node = size
    devices = [Place(k // per_node, str(k)) for k in range(nodes * per_node)]
    first = shared = len(devices) - sum(counts.values())
    layout: dict[str, list[Place]] = {}
    for role in dict.fromkeys(STAGES[stage] for stage in costs.stages):
        if role in counts:
            layout[role] = devices[first : first + counts[role]]
            first += counts[role]
        else:
            layout[role] = devices[: min(shared, costs.prompts) if role in ENGINES else shared]
    processes = {role: len(places) for role, places in layout.items()}
    return StepPlan(nodes, len(devices), kind, processes, predict(costs, layout, net))


def table_rows(plans: Sequence[StepPlan]) -> list[dict[str, Any]]:
    """One row of text per plan."""
    return [
        {
            "nodes": plan.nodes,
            "placement": plan.placement + " *" * plan.best,
            **{f"{role}s": plan.processes.get(role, 0) for role in ("rollout", "judge", "actor")},
            "s per step": f"{plan.prediction.seconds:.3g}",
            **{f"{role} idle": f"{share:.0%}" for role, share in plan.prediction.idle.items()},
            "devices idle": f"{plan.prediction.devices_idle:.0%}",
        }
        for plan in plans
    ]

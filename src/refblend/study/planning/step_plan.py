"""The best placement of a run on a cluster that is not there yet: every kind of layout, tried."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from refblend.errors import StudyError
from refblend.study.planning.step_model import (
    ENGINES,
    STAGES,
    Network,
    Place,
    Prediction,
    StepCosts,
    predict,
)

SHARES = 16
"""The search tries so many parts of a cluster for a role; all numbers on fewer devices."""
ROLES_APART = {"co-located": (), "engines apart": ("rollout",), "dedicated": ("rollout", "judge")}
"""Which engines have devices of their own; all others share what is left."""


@dataclass(frozen=True)
class StepPlan:
    """The best layout of one kind on so many nodes, and what the model says of it."""

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


def plan_step(costs: StepCosts, nodes: int, per_node: int, net: Network) -> list[StepPlan]:
    """The best layout of every kind, in the order of :data:`ROLES_APART`.

    Raises:
        StudyError: there is no node or no device.
    """
    if nodes < 1 or per_node < 1:
        raise StudyError("--nodes and --gpus-per-node must be at least 1", "Correct the value.")
    best: dict[str, StepPlan] = {}
    for kind, counts in _candidates(costs, nodes * per_node):
        plan = _tried(costs, (nodes, per_node), kind, counts, net)
        if kind not in best or plan.prediction.seconds < best[kind].prediction.seconds:
            best[kind] = plan
    least = min(best.values(), key=lambda plan: plan.prediction.seconds)
    return [replace(plan, best=plan is least) for plan in best.values()]


def _candidates(costs: StepCosts, devices: int) -> Iterator[tuple[str, dict[str, int]]]:
    """Kinds of layouts, with the devices that each role apart gets."""
    parts = min(devices, SHARES)
    engines = sorted({min(devices * k // parts, costs.prompts) for k in range(1, parts)})
    for kind, apart in ROLES_APART.items():
        if not apart:
            yield kind, {}
        elif len(apart) == 1:
            yield from ((kind, {"rollout": count}) for count in engines)
        elif "ref_quality_score" in costs.stages:
            pairs = ((e, j) for e in engines for j in engines if e + j < devices)
            yield from ((kind, {"rollout": e, "judge": j}) for e, j in pairs)


def _tried(
    costs: StepCosts, size: tuple[int, int], kind: str, counts: Mapping[str, int], net: Network
) -> StepPlan:
    """Training ranks from the first device on, the roles apart behind them."""
    nodes, per_node = size
    devices = [Place(k // per_node, str(k)) for k in range(nodes * per_node)]
    shared = len(devices) - sum(counts.values())
    layout: dict[str, list[Place]] = {}
    first = shared
    for role in dict.fromkeys(STAGES[stage] for stage in costs.stages):
        if role in counts:
            layout[role] = devices[first : first + counts[role]]
            first += counts[role]
        else:
            layout[role] = devices[: min(shared, costs.prompts) if role in ENGINES else shared]
    processes = {role: len(places) for role, places in layout.items()}
    return StepPlan(nodes, len(devices), kind, processes, predict(costs, layout, net))


def table_rows(plans: Sequence[StepPlan]) -> list[dict[str, Any]]:
    """A row of text for each plan."""
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

"""The best placement of a run on a cluster that is not there yet: measured costs, then the model.

Measured are the stages of a run, one process of each role at work at a time. Assumed are that a
stage takes a fixed time and a time for each prompt, the bandwidths, and that the models fit beside
one another where they share a device.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from refblend.config import RefblendConfig
from refblend.config.loading import parse_config
from refblend.config.scoring import SCORING_KEY
from refblend.errors import StudyError
from refblend.files import read_object
from refblend.rollout.model_dir import count_parameters
from refblend.study.planning.step_model import (
    ENGINES,
    SCORING,
    STAGES,
    Network,
    Place,
    Prediction,
    StageCost,
    StepCosts,
    predict,
)
from refblend.trainer.tracking import read_metrics

WARM_UP = 2
"""First steps that are left out: caches fill, libraries are loaded."""
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


def read_costs(sources: Sequence[Path], weights_gb: float | None = None) -> StepCosts:
    """Costs from one or two run directories, or from the JSON file of `bench_planning.py`.

    Two runs with batches of different sizes tell what a stage takes whatever the batch; with one,
    all of it is taken to grow with the batch.

    Raises:
        StudyError: a source cannot be read, or was measured so that stages disturbed one another.
        DataError, ConfigError, ModelError: the same of a file of the run.
    """
    if not 1 <= len(sources) <= 2:
        raise StudyError("--from is missing or given more than twice", "Name one or two runs.")
    if not sources[0].is_dir():
        return _recorded(sources[0], weights_gb)
    found = sorted((_measured(path, weights_gb) for path in sources), key=lambda c: -c.prompts)
    larger, smaller = found[0], found[-1]
    if len(found) == 1:
        return larger
    if larger.prompts == smaller.prompts or larger.stages.keys() != smaller.stages.keys():
        raise StudyError(
            f"{sources[0]} and {sources[1]} differ in more, or less, than the size of the batch",
            "Train the second with half of data.train_batch_size and of ppo_mini_batch_size.",
        )
    sizes = larger.prompts, smaller.prompts
    stages = {s: _line(larger.stages[s], smaller.stages[s], *sizes) for s in larger.stages}
    return replace(larger, stages=stages, driver=_line(larger.driver, smaller.driver, *sizes))


def _line(more: StageCost, less: StageCost, many: int, few: int) -> StageCost:
    """The straight line through two measurements; neither part is negative."""
    high, low = more.seconds(many), less.seconds(few)
    slope = min(max(0.0, (high - low) / (many - few)), high / many)
    return StageCost(per_prompt=slope, fixed=high - slope * many)


def _recorded(path: Path, weights_gb: float | None) -> StepCosts:
    try:
        costs = TypeAdapter(StepCosts).validate_python(read_object(path)["figures"]["costs"])
    except (OSError, ValueError, KeyError, TypeError, ValidationError) as error:
        raise StudyError(
            f"{path}: no costs of a step ({str(error).splitlines()[0]})",
            "Name a run directory, or a file that benchmarks/bench_planning.py wrote.",
        ) from None
    return costs if weights_gb is None else replace(costs, weights_gb=weights_gb)


def _measured(directory: Path, weights_gb: float | None) -> StepCosts:
    """The costs of one run, all of them growing with the batch."""
    try:
        config = parse_config(read_object(directory / "config.json"))
    except (OSError, ValueError) as error:
        raise StudyError(
            f"{directory}: config.json cannot be read ({error})", "Name a run's directory."
        ) from None
    _check(directory, config)
    seconds = _median_seconds(directory / "metrics.jsonl")
    prompts = config.data.train_batch_size
    ranks = {
        "actor": config.actor_rollout_ref.actor.fsdp_config.world_size,
        "ref": config.actor_rollout_ref.ref.fsdp_config.world_size,
        "critic": config.critic.fsdp_config.world_size,
    }
    stages = {
        name: StageCost(seconds[name] * ranks.get(role, 1) / prompts)
        for name, role in STAGES.items()
        if name in seconds
    }
    if (
        missing := {"gen", "old_log_prob", "update_actor", "update_weights", "step"}
        - seconds.keys()
    ):
        raise StudyError(
            f"{directory}: metrics.jsonl has no timing_s/{min(missing)}", "Name a finished run."
        )
    # The judge is waited for, then the passes run side by side.
    passes = max(seconds.get(name, 0.0) for name in SCORING[1:])
    others = ("gen", "ref_quality_score", "update_critic", "update_actor", "update_weights")
    staged = passes + math.fsum(seconds.get(name, 0.0) for name in others)
    actor = config.actor_rollout_ref.actor
    return StepCosts(
        stages=stages,
        driver=StageCost(max(0.0, seconds["step"] - staged) / prompts),
        push=seconds["update_weights"],
        prompts=prompts,
        responses=config.actor_rollout_ref.rollout.n,
        updates=actor.ppo_epochs * math.ceil(prompts / (actor.ppo_mini_batch_size or prompts)),
        weights_gb=_weights_gb(config) if weights_gb is None else weights_gb,
    )


def _check(directory: Path, config: RefblendConfig) -> None:
    """Refuse a run whose stages disturbed one another, or were split over engines.

    Raises:
        StudyError: names the key.
    """
    scoring, rollout = config.algorithm.ref_quality_score.scoring, config.actor_rollout_ref.rollout
    key, parallel = "actor_rollout_ref.rollout", rollout.tensor_model_parallel_size > 1
    wrong = {
        f"{key}.num_engines=1": rollout.num_engines > 1,
        f"{key}.tensor_model_parallel_size=1": parallel,
        f"{SCORING_KEY}.num_engines=1": config.use_judge and scoring.num_engines > 1,
        f"{SCORING_KEY}.overlap=false": config.use_judge and scoring.overlap,
    }
    if keys := [key for key, is_so in wrong.items() if is_so]:
        raise StudyError(
            f"{directory} does not tell what a stage costs alone",
            f"Train a few steps with {' '.join(keys)} and name that run.",
        )


def _median_seconds(path: Path) -> dict[str, float]:
    """Seconds of each stage, medians over the steps after the first ones."""
    table = read_metrics(path)
    medians = table[table["step"] > WARM_UP].filter(like="timing_s/").median().dropna()
    return {str(name).removeprefix("timing_s/"): float(value) for name, value in medians.items()}


def _weights_gb(config: RefblendConfig) -> float:
    key = "actor_rollout_ref.model.path"
    parameters = count_parameters(Path(config.actor_rollout_ref.model.path), key)
    if not parameters:
        raise StudyError(
            f"{key}: {config.actor_rollout_ref.model.path} holds no weights to count",
            "Give the size of the weights with --weights-gb.",
        )
    return parameters * 4e-9


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

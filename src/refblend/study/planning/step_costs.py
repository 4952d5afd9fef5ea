"""What a step costs, as finished runs measured it: the input of :mod:`step`."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pydantic import TypeAdapter

from refblend.config import RefblendConfig
from refblend.config.loading import parse_config
from refblend.config.scoring import SCORING_KEY
from refblend.errors import StudyError, first_line
from refblend.files import read_object
from refblend.rollout.model_dir import count_parameters
from refblend.study.planning.step import SCORING, STAGES, StageCost, StepCosts
from refblend.trainer.tracking import read_metrics

WARM_UP = 2
"""First steps of a run that are left out: caches fill, libraries are loaded."""


def read_costs(sources: Sequence[Path], weights_gb: float | None = None) -> StepCosts:
    """Costs from one or two run directories, or from the JSON file of ``bench_planning.py``.

    Two runs with batches of different sizes separate a stage's fixed time from its time per
    prompt; with one run, all time is assumed to scale with the batch.

    Raises:
        StudyError: a source cannot be read, or was measured so that stages disturbed one another.
        DataError, ConfigError, ModelError: the same of a file of the run.
    """
    files = [path for path in sources if not path.is_dir()]
    if not 1 <= len(sources) <= 2 or (files and len(sources) > 1):
        raise StudyError(
            f"--from names {', '.join(map(str, sources))}",
            "Name one or two run directories, or one result of bench_planning.py.",
        )
    if files:
        return _recorded(files[0], weights_gb)
    found = sorted((_measured(path, weights_gb) for path in sources), key=lambda c: -c.prompts)
    larger, smaller = found[0], found[-1]
    if len(found) == 1:
        return larger
    if larger.prompts == smaller.prompts or larger.stages.keys() != smaller.stages.keys():
        raise StudyError(
            f"{sources[0]} and {sources[1]} do not differ in the size of the batch alone",
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
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StudyError(
            f"{path}: no costs of a step ({first_line(error)})",
            "Name a run directory, or a result of bench_planning.py.",
        ) from None
    return costs if weights_gb is None else replace(costs, weights_gb=weights_gb)


def _measured(directory: Path, weights_gb: float | None) -> StepCosts:
    """The costs of one run: medians of its later steps, all of them growing with the batch."""
    try:
        config = parse_config(read_object(directory / "config.json"))
    except (OSError, ValueError) as error:
        reason = f"{directory}: config.json cannot be read ({error})"
        raise StudyError(reason, "Name a run's directory.") from None
    _check(directory, config)
    table = read_metrics(directory / "metrics.jsonl")
    medians = table[table["step"] > WARM_UP].filter(like="timing_s/").median().dropna()
    seconds = {str(k).removeprefix("timing_s/"): float(v) for k, v in medians.items()}
    needed = {"gen", "old_log_prob", "update_actor", "update_weights", "step"}
    if missing := needed - seconds.keys():
        raise StudyError(
            f"{directory}: no timing_s/{min(missing)} in metrics.jsonl", "Name a finished run."
        )
    actor, prompts = config.actor_rollout_ref.actor, config.data.train_batch_size
    ranks = {
        "actor": actor.fsdp_config.world_size,
        "ref": config.actor_rollout_ref.ref.fsdp_config.world_size,
        "critic": config.critic.fsdp_config.world_size,
    }
    # The judge is waited for, then the passes run side by side.
    passes = max(seconds.get(name, 0.0) for name in SCORING[1:])
    others = ("gen", "ref_quality_score", "update_critic", "update_actor", "update_weights")
    staged = passes + math.fsum(seconds.get(name, 0.0) for name in others)
    return StepCosts(
        stages={
            name: StageCost(seconds[name] * ranks.get(role, 1) / prompts)
            for name, role in STAGES.items()
            if name in seconds
        },
        driver=StageCost(max(0.0, seconds["step"] - staged) / prompts),
        push=seconds["update_weights"],
        prompts=prompts,
        responses=config.actor_rollout_ref.rollout.n,
        updates=actor.ppo_epochs * math.ceil(prompts / (actor.ppo_mini_batch_size or prompts)),
        weights_gb=_weights_gb(config) if weights_gb is None else weights_gb,
    )


def _check(directory: Path, config: RefblendConfig) -> None:
    """Refuse a run whose stages disturbed one another, or were split over engines."""
    scoring, rollout = config.algorithm.ref_quality_score.scoring, config.actor_rollout_ref.rollout
    key = "actor_rollout_ref.rollout"
    wrong = {
        f"{key}.num_engines=1": rollout.num_engines > 1,
        f"{key}.tensor_model_parallel_size=1": rollout.tensor_model_parallel_size > 1,
        f"{SCORING_KEY}.num_engines=1": config.use_judge and scoring.num_engines > 1,
        f"{SCORING_KEY}.overlap=false": config.use_judge and scoring.overlap,
    }
    if keys := [key for key, is_so in wrong.items() if is_so]:
        raise StudyError(
            f"{directory} does not tell what a stage costs alone",
            f"Train a few steps with {' '.join(keys)} and name that run.",
        )


def _weights_gb(config: RefblendConfig) -> float:
    key = "actor_rollout_ref.model.path"
    parameters = count_parameters(Path(config.actor_rollout_ref.model.path), key)
    if not parameters:
        raise StudyError(
            f"{key}: {config.actor_rollout_ref.model.path} holds no weights to count",
            "Give the size of the weights with --weights-gb.",
        )
    return parameters * 4e-9

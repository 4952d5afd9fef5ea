"""What the workflow itself is told: ``params/workflow.yaml``.

A test keeps ``workflow/schemas/config.schema.json`` in step with the model.
"""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from refblend.config import RefblendConfig
from refblend.config.base import NonNegativeInt, PositiveInt, Section
from refblend.config.loading import checked
from refblend.study.design.names import Scale


class ThreadsConfig(Section):
    """Threads that a job of each kind reserves and uses."""

    models: PositiveInt = 1
    """Warm starts and judges; one each, so that actor and judge can train concurrently."""
    train: PositiveInt = 1
    """PPO runs; with one thread each, two runs on two cores beat one run on two."""
    evaluate: PositiveInt = 1


class ChecksConfig(Section):
    """Incidents that a milestone tolerates; with more the target fails after the report."""

    overlength: NonNegativeInt = 0
    oom: NonNegativeInt = 0
    nonfinite: NonNegativeInt = 0


class ScoringSizes(Section):
    """How much is measured at a scale."""

    engine: Literal["vllm", "hf"] = "vllm"
    """The engine: vllm as in training, or hf, which starts faster."""
    pairs: PositiveInt = 512
    """Maximum number of held-out responses on which each judge is measured."""
    robustness_problems: PositiveInt = 60
    """Problems of experiment D's corpus, equally many of each difficulty; six responses each."""
    attacked_answers: PositiveInt = 60
    """Wrong answers on which every attack is tried."""


class ScoringStudy(Section):
    """The target `scoring`: the judges and the scoring path."""

    judge: Literal["weak", "medium", "strong"] = "medium"
    """The judge of experiment D and of the attacks."""
    sizes: dict[Literal["smoke", "cpu", "smollm"], ScoringSizes] = Field(
        default={
            "smoke": ScoringSizes(engine="hf", pairs=64, robustness_problems=4, attacked_answers=4),
            "cpu": ScoringSizes(),
            "smollm": ScoringSizes(pairs=192),
        }
    )
    """For the scales whose judges we train; measure other judges with `refblend judge`."""


class WorkflowConfig(Section):
    """``params/workflow.yaml``: the settings of Snakemake itself."""

    scale: Scale = "cpu"
    """Which ``params/scale/<scale>.yaml`` the targets build."""
    seeds_per_job: PositiveInt = 10
    """Seeds of an arm that one job trains, one after another in the same workers."""
    seeds_per_block: PositiveInt = 4
    """The same for a series, where all arms of a block run before the next block begins; even, so
    that the two seeds of a yoked pair are in one block."""
    gsm8k: str = "openai/gsm8k"
    """Where the problems of scales on GPUs come from: a folder with GSM8K's train and test (.jsonl
    or .parquet), or a name for ``datasets``."""
    models: dict[Literal["smoke", "cpu", "smollm"], str | None] = Field(
        default={"smoke": None, "cpu": "results/cpu/pieces/models.tar.xz", "smollm": None}
    )
    """Where the tokenizer, the actor and the judges of a scale come from: a file of `refblend
    models pack`, or null to train them. Those of scale cpu are the ones that its committed runs
    started from."""
    threads: ThreadsConfig = ThreadsConfig()
    checks: ChecksConfig = ChecksConfig()
    scoring: ScoringStudy = ScoringStudy()


def workflow_config(values: Mapping[str, Any]) -> dict[str, Any]:
    """The workflow's configuration with its defaults filled in; ConfigError lists what is wrong."""
    document = "params/workflow.yaml or --config: "
    return checked(WorkflowConfig, values, document).model_dump(mode="json")


def gpus_to_train(config: RefblendConfig) -> int:
    """GPUs that a run needs, where roles that share one are counted together."""
    policy, scoring = config.actor_rollout_ref, config.algorithm.ref_quality_score.scoring
    groups = (policy.actor, policy.ref, config.critic)
    shares = [group.fsdp_config.num_gpus_per_worker for group in groups]
    if not any((policy.rollout.num_gpus, scoring.num_gpus, *shares)):
        return 0
    # Takes seconds, which scales without GPUs save.
    from refblend.workers.placement import processes_of, totals

    return totals(processes_of(config))[1]


def gpus_to_test(config: RefblendConfig) -> int:
    """GPUs that the engine needs which tests the run's actor."""
    rollout = config.actor_rollout_ref.rollout
    return rollout.tensor_model_parallel_size if rollout.num_gpus else 0

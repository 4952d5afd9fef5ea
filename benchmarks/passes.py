"""An actor's two passes over a batch, as in the trainer: log-probs and the update."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import common
import torch

from refblend.config import load_config
from refblend.workers import batching
from refblend.workers.fsdp_workers import ActorWorker
from refblend.workers.types import MiniBatch, PolicyTargets, Sequences, Shard, response_mask


def load_actor(model: Path, *settings: str) -> ActorWorker:
    """The actor of scale cpu with a model; updates leave its weights unchanged.

    Args:
        model: a directory in Hugging Face format.
        settings: ``key=value`` below ``actor_rollout_ref``.
    """
    own = (f"model.path={model}", "actor.optim.lr=0", *settings)
    overrides = [f"actor_rollout_ref.{setting}" for setting in own]
    disabled = "algorithm.ref_quality_score.enable=false"
    return ActorWorker(load_config(common.CONFIGS, [*overrides, disabled]), total_steps=1)


@dataclass(frozen=True)
class Passes:
    """The micro-batches of a batch, and the work on them."""

    plan: list[list[int]]
    log_prob: Callable[[], Shard]
    update: Callable[[], dict[str, float]]


def passes_of(worker: ActorWorker, sequences: Sequences, budget: int | None = None) -> Passes:
    """All sequences in one mini-batch, with random advantages, the same at every call.

    Args:
        worker: the actor; its configuration says whether responses share their prompt.
        sequences: the batch.
        budget: tokens of a micro-batch; the actor's own when None.
    """
    plan = batching.plan_micro_batches(
        sequences.lengths,
        range(len(sequences)),
        1,
        budget or worker.config.ppo_max_token_len_per_gpu,
        prompts=sequences.prompt_ids if worker.loading["shared_prefix"] else None,
    )[0]
    mask = response_mask(sequences.response_lengths)
    advantages = torch.randn(mask.shape, generator=torch.Generator().manual_seed(0))
    targets = PolicyTargets(mask, torch.zeros_like(mask), advantages)
    mini = [MiniBatch(plan, float(mask.sum()), len(sequences))]
    return Passes(
        plan,
        lambda: worker.compute_log_prob(sequences, plan),
        lambda: worker.update(sequences, targets, mini, 1),
    )

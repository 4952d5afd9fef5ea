"""A batch with uneven lengths, its targets, and its plans, made without Ray.

``fsdp_ranks.py`` imports this file too: every rank of a group must see the same batch.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from refblend.config import RefblendConfig
from refblend.config.actor_rollout_ref import TrainWorkerConfig
from refblend.config.loading import merge
from refblend.workers import batching
from refblend.workers.layout import pad_batch, scatter_tokens
from refblend.workers.networks import load_policy
from refblend.workers.types import MiniBatch, PolicyTargets, Sequences, ValueTargets, response_mask

LENGTHS = [(9, 5), (21, 12), (5, 0), (9, 2), (21, 7), (17, 12), (21, 1)]
"""Prompt and response tokens of each row; one response is empty. Prompts of one length are one."""


def make_sequences(vocab: int, seed: int = 0) -> Sequences:
    """Seven rows of random tokens."""
    rng = torch.Generator().manual_seed(seed)

    def draw(count: int) -> list[int]:
        return torch.randint(3, vocab, (count,), generator=rng).tolist()

    prompts = {length: draw(length) for length, _ in LENGTHS}
    return Sequences([prompts[p] for p, _ in LENGTHS], [draw(r) for _, r in LENGTHS])


@torch.no_grad()
def make_targets(model_dir: Path, sequences: Sequences) -> tuple[PolicyTargets, ValueTargets]:
    """Targets near the model's own log-probs, so that some ratios are clipped and some are not."""
    rng = torch.Generator().manual_seed(1)
    mask = response_mask(sequences.response_lengths, sequences.response_width)
    shape = mask.shape
    policy = load_policy(str(model_dir), 1.0)
    batch = pad_batch(sequences, range(len(sequences)), torch.device("cpu"))
    log_probs = scatter_tokens(policy(batch)[0], batch, *shape)

    def noise(scale: float) -> torch.Tensor:
        return torch.randn(shape, generator=rng) * scale * mask

    policy_targets = PolicyTargets(
        response_mask=mask,
        old_log_probs=log_probs + noise(0.2),
        advantages=noise(1.0),
        ref_log_probs=log_probs + noise(0.3),
        importance_weights=(1.0 + noise(0.1)) * mask,
    )
    return policy_targets, ValueTargets(mask, values=noise(0.3), returns=noise(1.0))


def plan_updates(
    sequences: Sequences, config: TrainWorkerConfig, ranks: int = 1, mini_rows: int | None = None
) -> list[list[MiniBatch]]:
    """For each rank its mini-batches, as the driver plans them."""
    plans: list[list[MiniBatch]] = [[] for _ in range(ranks)]
    answered = sequences.response_lengths
    for rows in batching.split_mini_batches(len(sequences), mini_rows):
        shares = batching.plan_micro_batches(
            sequences.lengths,
            rows,
            ranks,
            config.ppo_max_token_len_per_gpu,
            prompts=sequences.prompt_ids,
        )
        for plan, share in zip(plans, shares, strict=True):
            tokens = float(sum(answered[r] for r in rows))
            plan.append(MiniBatch(share, tokens, sum(answered[r] > 0 for r in rows)))
    return plans


TRAINING = {
    "actor_rollout_ref": {
        "actor": {
            "entropy_coeff": 0.01,
            "use_kl_loss": True,
            "kl_loss_coef": 0.1,
            "optim": {"lr": 1e-4},
            "ppo_max_token_len_per_gpu": 24,
        }
    },
    "critic": {"enable": True, "optim": {"lr": 1e-4}, "ppo_max_token_len_per_gpu": 24},
}


@pytest.fixture
def training_config(tiny_config: Callable[..., RefblendConfig]) -> Callable[..., RefblendConfig]:
    """A configuration whose actor loss has every term and whose token budget is small."""
    return lambda *overrides: tiny_config(TRAINING, *overrides)


@pytest.fixture(scope="session")
def rank_config(tiny_model_dir: Path) -> dict[str, Any]:
    """The same as plain values, for ranks that are processes of their own."""
    files = {"train_files": ["none"], "val_files": ["none"], "max_response_length": 12}
    paths = {"actor_rollout_ref": {"model": {"path": str(tiny_model_dir)}}, "data": files}
    return merge(TRAINING, paths)


@pytest.fixture(scope="session")
def sequences() -> Sequences:
    return make_sequences(400)


@pytest.fixture(scope="session")
def targets(tiny_model_dir: Path, sequences: Sequences) -> tuple[PolicyTargets, ValueTargets]:
    return make_targets(tiny_model_dir, sequences)


@pytest.fixture
def plan() -> Callable[..., list[list[MiniBatch]]]:
    return plan_updates

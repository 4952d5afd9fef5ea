"""Advantage estimators: from token-level rewards to (advantages, returns), both (B, T).

Common to all: rewards at masked positions are ignored and the results are 0 there; an empty
response has score 0 and still counts in its group; gaps in a mask within a response are skipped
(values, advantages and returns pass through them). Each function names its source.
"""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from refblend.ppo.masking import masked_fill, masked_sum, masked_whiten, upcast

GroupIndex = Sequence[Hashable] | np.ndarray[Any, Any] | Tensor
"""For each of the B rows the id of its prompt; rows of equal ids form a group."""

GROUP_EPSILON = 1e-6


def group_numbers(index: GroupIndex, rows: int) -> Tensor:
    """Group ids of any hashable kind as numbers 0 … G−1 in order of appearance, (B,) long."""
    ids = index.tolist() if isinstance(index, Tensor | np.ndarray) else list(index)
    if len(ids) != rows:
        raise ValueError(f"index holds {len(ids)} group ids for {rows} rows")
    numbers: dict[Hashable, int] = {}
    return torch.tensor([numbers.setdefault(i, len(numbers)) for i in ids], dtype=torch.long)


def group_moments(scores: Tensor, index: GroupIndex) -> tuple[Tensor, Tensor, Tensor]:
    """For each row its group's size, mean and unbiased standard deviation (nan for one row).

    ``scores`` are float64. The mean of equal scores is exactly that score: a rounding error would
    be divided by a standard deviation of its own size, giving a signal to a group that has none.
    """
    groups = group_numbers(index, scores.shape[0]).to(scores.device)
    count = int(groups.max()) + 1 if len(groups) else 0
    zeros = torch.zeros(count, dtype=scores.dtype, device=scores.device)
    sizes = zeros.index_add(0, groups, torch.ones_like(scores))
    means = zeros.index_add(0, groups, scores) / sizes
    low = zeros.scatter_reduce(0, groups, scores, "amin", include_self=False)
    high = zeros.scatter_reduce(0, groups, scores, "amax", include_self=False)
    means = torch.where(low == high, low, means)
    squares = zeros.index_add(0, groups, (scores - means[groups]).square())
    return sizes[groups], means[groups], (squares / (sizes - 1)).sqrt()[groups]


def _scores_in_groups(
    token_level_rewards: Tensor, response_mask: Tensor, index: GroupIndex
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """s = Σ_t r_t of each row, float64, and :func:`group_moments`; a group of one has mean 0, as in
    verl."""
    scores = masked_sum(token_level_rewards.double(), response_mask, dim=-1)
    sizes, means, deviations = group_moments(scores, index)
    return scores, sizes, torch.where(sizes > 1, means, 0.0), deviations


def _on_tokens(per_row: Tensor, response_mask: Tensor, dtype: torch.dtype) -> Tensor:
    column = per_row.to(dtype).unsqueeze(-1)
    return masked_fill(column.expand(response_mask.shape), response_mask)


@torch.no_grad()
def compute_gae_advantage_return(
    token_level_rewards: Tensor,
    values: Tensor,
    response_mask: Tensor,
    gamma: float = 1.0,
    lam: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimation (arXiv 1506.02438, equation 16).

    δ_t = r_t + γ·V_{t+1} − V_t, A_t = δ_t + γλ·A_{t+1}, with V after the last token 0. Returns are
    A + V before the advantages are whitened over the batch.
    """
    rewards = masked_fill(token_level_rewards, response_mask)
    values = masked_fill(values, response_mask)
    selected = response_mask.bool()
    advantages = torch.zeros_like(rewards)
    next_value = next_advantage = torch.zeros_like(rewards[:, 0])
    for t in range(rewards.shape[1] - 1, -1, -1):
        delta = rewards[:, t] + gamma * next_value - values[:, t]
        advantage = delta + gamma * lam * next_advantage
        next_advantage = torch.where(selected[:, t], advantage, next_advantage)
        next_value = torch.where(selected[:, t], values[:, t], next_value)
        advantages[:, t] = next_advantage
    returns = masked_fill(advantages + values, response_mask)
    return masked_whiten(advantages, response_mask), returns


@torch.no_grad()
def compute_grpo_outcome_advantage(
    token_level_rewards: Tensor,
    response_mask: Tensor,
    index: GroupIndex,
    norm_adv_by_std_in_grpo: bool = True,
) -> tuple[Tensor, Tensor]:
    """GRPO (arXiv 2402.03300): A = (s − mean_group)/(std_group + 1e-6), s = Σ_t r_t.

    ``norm_adv_by_std_in_grpo=False``: s − mean_group, Dr.GRPO (arXiv 2503.20783). The standard
    deviation is unbiased; a group of one has mean 0 and standard deviation 1, as in verl.
    """
    scores, sizes, means, deviations = _scores_in_groups(token_level_rewards, response_mask, index)
    advantages = scores - means
    if norm_adv_by_std_in_grpo:
        spread = torch.where(sizes > 1, deviations, torch.ones_like(deviations))
        advantages = advantages / (spread + GROUP_EPSILON)
    tokens = _on_tokens(advantages, response_mask, upcast(token_level_rewards).dtype)
    return tokens, tokens


@torch.no_grad()
def compute_rloo_outcome_advantage(
    token_level_rewards: Tensor, response_mask: Tensor, index: GroupIndex
) -> tuple[Tensor, Tensor]:
    """RLOO (arXiv 2402.14740): s minus the mean of the others = G/(G−1)·(s − mean_group).

    A group of one has no others: its advantage is s, as in verl.
    """
    scores, sizes, means, _ = _scores_in_groups(token_level_rewards, response_mask, index)
    others = sizes / (sizes - 1).clamp(min=1) * (scores - means)
    tokens = _on_tokens(others, response_mask, upcast(token_level_rewards).dtype)
    return tokens, tokens


@torch.no_grad()
def compute_reinforce_plus_plus_outcome_advantage(
    token_level_rewards: Tensor, response_mask: Tensor, gamma: float = 1.0
) -> tuple[Tensor, Tensor]:
    """REINFORCE++ (arXiv 2501.03262): G_t = r_t + γ·G_{t+1}, whitened over the batch.

    That is GAE with V = 0 and λ = 1.
    """
    nothing = torch.zeros_like(token_level_rewards)
    return compute_gae_advantage_return(token_level_rewards, nothing, response_mask, gamma)


@torch.no_grad()
def compute_reinforce_plus_plus_baseline_outcome_advantage(
    token_level_rewards: Tensor, response_mask: Tensor, index: GroupIndex
) -> tuple[Tensor, Tensor]:
    """REINFORCE++-baseline (arXiv 2501.03262): s − mean_group on each token, then whitened.

    A group of one has mean 0, as in verl.
    """
    scores, _, means, _ = _scores_in_groups(token_level_rewards, response_mask, index)
    tokens = _on_tokens(scores - means, response_mask, upcast(token_level_rewards).dtype)
    tokens = masked_whiten(tokens, response_mask)
    return tokens, tokens


@torch.no_grad()
def compute_remax_outcome_advantage(
    token_level_rewards: Tensor, reward_baselines: Tensor, response_mask: Tensor
) -> tuple[Tensor, Tensor]:
    """ReMax (arXiv 2310.10505): s minus the score (B,) of the greedy response to the same prompt.

    The returns are the rewards to go. verl subtracts the baseline from them as well, which agrees
    for a reward on the last token; with dense rewards it would compare the whole baseline with part
    of the score, and penalise late tokens for being late.
    """
    rewards = masked_fill(token_level_rewards, response_mask)
    if reward_baselines.shape != rewards.shape[:1]:
        raise ValueError(
            f"reward_baselines {tuple(reward_baselines.shape)} must hold one value for each of the "
            f"{rewards.shape[0]} rows"
        )
    to_go = masked_fill(rewards.flip(-1).cumsum(-1).flip(-1), response_mask)
    difference = rewards.sum(-1) - reward_baselines
    return _on_tokens(difference, response_mask, rewards.dtype), to_go

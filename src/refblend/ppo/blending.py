"""The blend: average entropy, placement of Q on the tokens, and R' from R and Q.

The maps from entropy to the weight w are in :mod:`refblend.ppo.entropy_maps`.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from refblend.ppo.choices import PLACEMENTS, Placement
from refblend.ppo.masking import masked_fill, masked_mean, upcast


def compute_avg_response_entropy(entropy: Tensor, response_mask: Tensor) -> Tensor:
    """mean_b( Σ_t E·M / max(1, Σ_t M) ) in nats, a scalar tensor; ValueError for an empty batch.

    An empty response counts as a sequence of entropy 0, by the max(1, ·).
    """
    if entropy.shape[0] == 0:
        raise ValueError("the average entropy of a batch without sequences is not defined")
    return masked_mean(entropy, response_mask, dim=-1).mean()


def expand_quality(
    scores: Tensor, response_mask: Tensor, placement: Placement = "per_token"
) -> Tensor:
    """Put each sequence's score on its response tokens: (B,) → (B, T), 0 where masked.

    ``per_token`` (the default): q on every token, so the return is q·L and length is rewarded;
    ``terminal``: q on the last response token; ``per_token_mean``: q/L on each token. A row without
    response tokens is all 0.
    """
    if scores.shape != response_mask.shape[:1]:
        raise ValueError(
            f"scores {tuple(scores.shape)} must hold one value for each of the "
            f"{response_mask.shape[0]} rows"
        )
    column = upcast(scores).unsqueeze(-1).expand(response_mask.shape)
    if placement == "per_token":
        return masked_fill(column, response_mask)
    if placement == "per_token_mean":
        lengths = response_mask.bool().sum(dim=-1, keepdim=True).clamp(min=1)
        return masked_fill(column / lengths, response_mask)
    if placement == "terminal":
        selected = response_mask.bool()
        later = selected.flip(-1).cumsum(-1).flip(-1)
        return masked_fill(column, selected & (later == 1))
    raise ValueError(f"placement={placement!r} is unknown: use one of {', '.join(PLACEMENTS)}")


def blend_rewards(
    rewards: Tensor, quality: Tensor, response_mask: Tensor, weight: float | Tensor
) -> Tensor:
    """R' = (1 − w)·R + w·Q on response tokens, 0 elsewhere; (B, T).

    Args:
        rewards: (B, T) rule rewards.
        quality: (B, T) from :func:`expand_quality`.
        response_mask: (B, T).
        weight: w in [0, 1], one number or one per row (B,): 0 leaves a row's reward unchanged.
    """
    rewards, quality = masked_fill(rewards, response_mask), masked_fill(quality, response_mask)
    share = torch.as_tensor(weight, dtype=rewards.dtype, device=rewards.device)
    if share.dim() not in (0, 1) or (share.dim() == 1 and share.shape != rewards.shape[:1]):
        raise ValueError(f"weight {tuple(share.shape)} must be one number or one for each row")
    if not bool(((share >= 0) & (share <= 1)).all()):
        raise ValueError(f"weight={weight} must lie in [0, 1]")
    share = share.unsqueeze(-1) if share.dim() == 1 else share
    return (1 - share) * rewards + share * quality


def mixed_groups(rewards: Tensor, groups: Sequence[int]) -> Tensor:
    """1 for the rows of groups whose rewards differ, 0 for the others; (B,) → (B,) float32.

    In a group of equal rewards, std-normalised GRPO turns any blended difference into advantages
    of full size, whatever w: there the weight is no dose. ``groups``: B labels, one per prompt.
    """
    by_group: dict[int, set[float]] = {}
    for group, reward in zip(groups, rewards.tolist(), strict=True):
        by_group.setdefault(group, set()).add(reward)
    return torch.tensor([float(len(by_group[group]) > 1) for group in groups])


def shuffle_scores(scores: Tensor, generator: np.random.Generator) -> Tensor:
    """Control arm ``shuffled``: the batch's scores in random order.

    A copy: only the pairing of scores and responses is lost, not their distribution.
    """
    order = generator.permutation(scores.shape[0])
    return scores[torch.as_tensor(order, dtype=torch.long, device=scores.device)]

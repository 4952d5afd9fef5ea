"""The representation-alignment bonus: stay close to the gold solution's meaning while uncertain.

When the actor's average entropy reaches a threshold, each response gets
weight × cos(h_response, h_gold), h the mean of the frozen reference model's last hidden states,
spread evenly over its tokens (off by default). Pure functions on tensors.
"""

import torch
from torch import Tensor

from refblend.ppo.blending import expand_quality
from refblend.ppo.entropy_maps import entropy_of, warmed_ramp
from refblend.ppo.masking import upcast


def cosine_similarity(first: Tensor, second: Tensor) -> Tensor:
    """Cosine of paired rows, (B, H) × (B, H) → (B,) in [−1, 1]; 0 where a row is all 0.

    Rows are scaled by their largest entry first, so that very large or small states neither
    overflow nor vanish.
    """
    if first.shape != second.shape:
        raise ValueError(f"{tuple(first.shape)} and {tuple(second.shape)} must have one shape")

    def unit(x: Tensor) -> Tensor:
        x = upcast(x)
        largest = x.abs().amax(-1, keepdim=True)
        scaled = x / torch.where(largest > 0, largest, torch.ones_like(largest))
        norm = scaled.norm(dim=-1, keepdim=True)
        return scaled / torch.where(norm > 0, norm, torch.ones_like(norm))

    return (unit(first) * unit(second)).sum(-1).clamp(-1.0, 1.0)


def alignment_weight(
    avg_entropy: float | Tensor,
    step: int,
    weight: float = 0.1,
    warmup_steps: int = 0,
    entropy_high_threshold: float = 0.32,
) -> float:
    """The bonus's weight at this 1-based step: 0 below the threshold, else the warmed-up weight."""
    entropy = entropy_of(avg_entropy)
    if not weight >= 0 or not entropy_high_threshold > 0:
        raise ValueError(
            f"repr_align: weight={weight} must not be negative and "
            f"entropy_high_threshold={entropy_high_threshold} must be positive"
        )
    return weight * warmed_ramp(step, warmup_steps) if entropy >= entropy_high_threshold else 0.0


def alignment_bonus(similarity: Tensor, response_mask: Tensor, weight: float) -> Tensor:
    """weight · cos / L on each of a response's L tokens, 0 elsewhere; (B,) → (B, T).

    A row sums to weight · cos regardless of its length; an empty row gets nothing.
    """
    return expand_quality(weight * upcast(similarity), response_mask, "per_token_mean")

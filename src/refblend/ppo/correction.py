"""Importance correction between the rollout engine's and the trainer's log-probs of a token.

Both use the same weights and temperature; they differ in kernels and precision.
ρ = π_trainer/π_rollout = exp(clamp(log π_trainer − log π_rollout, ±20)).
"""

import torch
from torch import Tensor

from refblend.ppo.choices import CorrectionMode
from refblend.ppo.kl import kl_penalty
from refblend.ppo.masking import log_ratio, masked_fill, masked_mean


@torch.no_grad()
def importance_weights(
    rollout_log_probs: Tensor,
    old_log_probs: Tensor,
    response_mask: Tensor,
    mode: CorrectionMode = "truncate",
    threshold: float = 2.0,
) -> Tensor | None:
    """Weights (B, T) that multiply the policy loss, 0 where masked; None when ``off``.

    ``truncate``: min(ρ, C), truncated importance sampling (TIS); ``mask``: ρ inside [1/C, C] and 0
    outside, after IcePop (arXiv 2510.18855). C > 1 is ``threshold``; the log-probs (B, T) are the
    engine's at sampling and the trainer's before the update.
    """
    if mode == "off":
        return None
    if not threshold > 1:
        raise ValueError(f"threshold={threshold} must exceed 1")
    ratio = log_ratio(old_log_probs, rollout_log_probs, response_mask).exp()
    if mode == "truncate":
        weights = ratio.clamp(max=threshold)
    elif mode == "mask":
        inside = (ratio >= 1.0 / threshold) & (ratio <= threshold)
        weights = torch.where(inside, ratio, torch.zeros_like(ratio))
    else:
        raise ValueError(f"mode={mode!r} is unknown: use off, truncate or mask")
    return masked_fill(weights, response_mask)


@torch.no_grad()
def mismatch_metrics(
    rollout_log_probs: Tensor,
    old_log_probs: Tensor,
    response_mask: Tensor,
    threshold: float = 2.0,
) -> dict[str, float]:
    """Mismatch of engine and trainer over the response tokens; all 0 without tokens.

    Keys: ``training/rollout_probs_diff_mean`` and ``_max`` (|π_rollout − π_trainer|),
    ``training/rollout_kl`` (k3 estimate of KL(rollout ‖ trainer)),
    ``training/rollout_is_weight_{mean,max}`` (ρ) and ``training/rollout_is_outside`` (share of
    tokens whose ρ is outside [1/threshold, threshold]).
    """
    rollout, trainer = (masked_fill(x, response_mask) for x in (rollout_log_probs, old_log_probs))
    # masked positions are log-prob 0 on both sides: difference 0, ratio 1
    difference = (rollout.exp() - trainer.exp()).abs()
    ratios = log_ratio(trainer, rollout, response_mask).exp()
    ratio = masked_fill(ratios, response_mask)
    outside = (ratios < 1.0 / threshold) | (ratios > threshold)
    empty = rollout.numel() == 0
    return {
        "training/rollout_probs_diff_mean": float(masked_mean(difference, response_mask)),
        "training/rollout_probs_diff_max": 0.0 if empty else float(difference.max()),
        "training/rollout_kl": float(
            masked_mean(kl_penalty(rollout, trainer, "k3"), response_mask)
        ),
        "training/rollout_is_weight_mean": float(masked_mean(ratio, response_mask)),
        "training/rollout_is_weight_max": 0.0 if empty else float(ratio.max()),
        "training/rollout_is_outside": float(masked_mean(outside.float(), response_mask)),
    }

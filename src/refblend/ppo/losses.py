"""Policy and value losses, and how a (B, T) loss becomes one number.

Every loss takes the same normalisers (``batch_num_tokens``, ``global_batch_size``,
``loss_scale_factor``): given those of the whole mini-batch, the results of its micro-batches and
ranks add up to the whole batch's, metrics included. A KL loss is :func:`agg_loss` of
:func:`refblend.ppo.kl.kl_penalty`; the entropy bonus is that of the entropy.
"""

from typing import NamedTuple, get_args

import torch
from torch import Tensor

from refblend.ppo.choices import LossAggMode
from refblend.ppo.masking import log_ratio, masked_fill, masked_sum

LOSS_AGG_MODES: tuple[LossAggMode, ...] = get_args(LossAggMode)


def agg_loss(
    loss_mat: Tensor,
    loss_mask: Tensor,
    loss_agg_mode: str = "token-mean",
    *,
    batch_num_tokens: float | None = None,
    global_batch_size: float | None = None,
    loss_scale_factor: float | None = None,
) -> Tensor:
    """Reduce a loss (B, T) to a scalar over the selected tokens.

    ``token-mean``: Σ / tokens (DAPO, arXiv 2503.14476); ``seq-mean-token-sum``: mean over
    sequences of the sum; ``seq-mean-token-mean``: mean over sequences of the mean (GRPO);
    ``seq-mean-token-sum-norm``: as the second, divided by a constant (Dr.GRPO). A sequence without
    selected tokens does not count, and a batch without any gives 0 (with a zero gradient).

    Args:
        loss_mat: (B, T).
        loss_mask: (B, T).
        loss_agg_mode: one of :data:`LOSS_AGG_MODES`.
        batch_num_tokens: tokens of the whole batch; default: of this one.
        global_batch_size: non-empty sequences of the whole batch; default: of this one.
        loss_scale_factor: the constant of the last mode; default: T.

    Raises:
        ValueError: an unknown mode, or the shapes differ.
    """
    if loss_agg_mode not in LOSS_AGG_MODES:
        raise ValueError(
            f"loss_agg_mode={loss_agg_mode!r} is unknown: use one of {', '.join(LOSS_AGG_MODES)}"
        )
    lengths = loss_mask.bool().sum(-1)
    if loss_agg_mode == "token-mean":
        tokens = float(lengths.sum()) if batch_num_tokens is None else float(batch_num_tokens)
        return masked_sum(loss_mat, loss_mask) / max(tokens, 1.0)
    per_row = masked_sum(loss_mat, loss_mask, dim=-1)
    if loss_agg_mode == "seq-mean-token-mean":
        per_row = per_row / lengths.clamp(min=1)
    rows = float((lengths > 0).sum()) if global_batch_size is None else float(global_batch_size)
    loss = per_row.sum() / max(rows, 1.0)
    if loss_agg_mode == "seq-mean-token-sum-norm":
        divisor = loss_mask.shape[-1] if loss_scale_factor is None else loss_scale_factor
        loss = loss / max(float(divisor), 1.0)
    return loss


class PolicyLoss(NamedTuple):
    """The loss first; the metrics are detached token means."""

    loss: Tensor
    clipfrac: Tensor
    """Share of tokens at which the upper clip was active (``actor/pg_clipfrac``)."""
    ppo_kl: Tensor
    """Mean of old − new log-prob (``actor/ppo_kl``)."""
    clipfrac_lower: Tensor
    """Share of tokens at which the dual clip was active (``actor/pg_clipfrac_lower``)."""


def compute_policy_loss(
    old_log_prob: Tensor,
    log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    cliprange_low: float = 0.2,
    cliprange_high: float = 0.2,
    clip_ratio_c: float | None = 3.0,
    loss_agg_mode: str = "token-mean",
    *,
    importance_weights: Tensor | None = None,
    **normalisers: float | None,
) -> PolicyLoss:
    """PPO's clipped surrogate (arXiv 1707.06347), asymmetric (DAPO) and dual (arXiv 1912.09729).

    ρ = exp(clamp(log π − log π_old, ±20)); L = max(−Aρ, −A·clip(ρ, 1−ε_low, 1+ε_high)); where
    A < 0, L = min(L, −c·A). ``importance_weights`` (B, T) of :mod:`refblend.ppo.correction`
    multiply L token by token; they carry no gradient. 0 ≤ ε, ε_low ≤ 1, c > 1. ``normalisers`` are
    those of :func:`agg_loss`.
    """
    if cliprange_low < 0 or cliprange_low > 1 or cliprange_high < 0:
        raise ValueError(
            f"cliprange_low={cliprange_low} must lie in [0, 1] and "
            f"cliprange_high={cliprange_high} must not be negative"
        )
    if clip_ratio_c is not None and not clip_ratio_c > 1:
        raise ValueError(f"clip_ratio_c={clip_ratio_c} must exceed 1")
    tokens = normalisers.get("batch_num_tokens")
    advantage = masked_fill(advantages.detach(), response_mask)
    difference = log_ratio(log_prob, old_log_prob.detach(), response_mask)
    ratio = difference.exp()
    plain = -advantage * ratio
    clipped = -advantage * ratio.clamp(1.0 - cliprange_low, 1.0 + cliprange_high)
    upper = torch.maximum(plain, clipped)
    loss_mat, dual = upper, torch.zeros_like(upper, dtype=torch.bool)
    if clip_ratio_c is not None:
        bound = -clip_ratio_c * advantage
        dual = (advantage < 0) & (bound < upper)
        loss_mat = torch.where(advantage < 0, torch.minimum(upper, bound), upper)
    if importance_weights is not None:
        loss_mat = loss_mat * masked_fill(importance_weights.detach(), response_mask)
    with torch.no_grad():
        metrics = [
            agg_loss(metric, response_mask, batch_num_tokens=tokens)
            for metric in ((clipped > plain).to(plain.dtype), -difference, dual.to(plain.dtype))
        ]
    return PolicyLoss(agg_loss(loss_mat, response_mask, loss_agg_mode, **normalisers), *metrics)


class ValueLoss(NamedTuple):
    """The loss first; the metric is a detached token mean."""

    loss: Tensor
    clipfrac: Tensor
    """Share of tokens at which the clip was active (``critic/vf_clipfrac``)."""


def compute_value_loss(
    vpreds: Tensor,
    returns: Tensor,
    values: Tensor,
    response_mask: Tensor,
    cliprange_value: float = 0.5,
    loss_agg_mode: str = "token-mean",
    **normalisers: float | None,
) -> ValueLoss:
    """½·agg max((v − R)², (clip(v, v_old ± c) − R)²), after PPO's reference implementation.

    ``vpreds`` are the new values v, with gradient, ``values`` v_old at rollout time, ``returns`` R,
    all (B, T); c ≥ 0 is ``cliprange_value``. ``normalisers`` as in :func:`agg_loss`.
    """
    if cliprange_value < 0:
        raise ValueError(f"cliprange_value={cliprange_value} must not be negative")
    new = masked_fill(vpreds, response_mask)
    target = masked_fill(returns.detach(), response_mask)
    old = masked_fill(values.detach(), response_mask)
    plain = (new - target).square()
    clipped = (new.clamp(old - cliprange_value, old + cliprange_value) - target).square()
    loss = agg_loss(torch.maximum(plain, clipped), response_mask, loss_agg_mode, **normalisers)
    tokens = normalisers.get("batch_num_tokens")
    with torch.no_grad():
        beyond = (clipped > plain).to(plain.dtype)
        share = agg_loss(beyond, response_mask, batch_num_tokens=tokens)
    return ValueLoss(0.5 * loss, share)

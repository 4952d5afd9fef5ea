"""Sums, means and whitening over the tokens that a mask selects.

Masked positions are replaced before any arithmetic, so NaN or infinity there is harmless
(multiplying by a zero mask, as verl does, would propagate it).
"""

import torch
from torch import Tensor

MAX_LOG_RATIO = 20.0


def upcast(values: Tensor) -> Tensor:
    """Half precision, integers and booleans as float32; float32 and float64 unchanged."""
    return values if values.dtype in (torch.float32, torch.float64) else values.float()


def masked_fill(values: Tensor, mask: Tensor) -> Tensor:
    """``values`` in at least float32, 0 where the mask, of the same shape, is 0."""
    if values.shape != mask.shape:
        raise ValueError(
            f"values {tuple(values.shape)} and mask {tuple(mask.shape)} must have one shape"
        )
    values = upcast(values)
    return torch.where(mask.bool(), values, torch.zeros_like(values))


def log_ratio(new: Tensor, old: Tensor, mask: Tensor) -> Tensor:
    """log π_new − log π_old of each token, clamped to ±20; 0 where masked."""
    difference = masked_fill(new, mask) - masked_fill(old, mask)
    return difference.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


def masked_sum(values: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """Sum over the selected positions, of all or along ``dim``; 0 where none is selected."""
    selected = masked_fill(values, mask)
    return selected.sum() if dim is None else selected.sum(dim)


def masked_mean(values: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """Mean over the selected positions, of all or along ``dim``; 0 where none is selected."""
    count = mask.bool().sum() if dim is None else mask.bool().sum(dim)
    return masked_sum(values, mask, dim) / count.clamp(min=1)


def masked_whiten(values: Tensor, mask: Tensor) -> Tensor:
    """(x − μ)·rsqrt(σ² + 1e-8) over the selected positions, two or more, 0 elsewhere; (B, T).

    σ² is the unbiased variance.
    """
    count = mask.bool().sum()
    if int(count) < 2:
        raise ValueError(
            f"the variance needs at least two response tokens, but the mask selects {int(count)}"
        )
    exact = values.double()  # in float32, equal values far from 0 would differ from their mean
    centred = masked_fill(exact, mask) - masked_mean(exact, mask)
    variance = masked_mean(centred.square(), mask) * count / (count - 1)
    return masked_fill(centred * torch.rsqrt(variance + 1e-8), mask).to(upcast(values).dtype)

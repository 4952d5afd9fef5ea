"""The output head over a large vocabulary: log-probs and entropies without all logits in memory.

A chunk's logits are computed again in the backward pass, where they turn, in place, into their own
gradient. With π = softmax(z / T), H its entropy and y the label::

    d log π(y) / d z = (1[y] − π) / T          d H / d z = −π (log π + H) / T

On the CPU the softmax takes a few tokens at a time, so that they stay in the processor's cache. On
a GPU it is compiled, so that it reads the logits twice and not a dozen times;
``TORCH_COMPILE_DISABLE=1`` in the environment leaves it as it is written.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear

from refblend.ppo.entropy import log_probs_and_entropy
from refblend.ppo.masking import upcast

CACHED_LOGITS = 2**20
"""On which the steps of a softmax follow one another on the CPU: 4 MiB in float32."""
COMPILED_ON = ("cuda",)
"""Kinds of device that compile the softmax."""


def chunked_log_probs(
    head: nn.Linear, hidden: Tensor, labels: Tensor, temperature: float, size: int
) -> tuple[Tensor, Tensor]:
    """Log-probs (M,) of ``labels`` (M,) and entropies (M,) of the head's distributions, in float32.

    ``hidden`` (M, H) are the states that predict the labels; logits of ``size`` tokens are held.
    """
    kind = hidden.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else hidden.dtype
    values: tuple[Tensor, Tensor] = _ChunkedHead.apply(
        hidden.to(dtype), head.weight, head.bias, labels, temperature, size
    )
    return values


class _ChunkedHead(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        temperature: float,
        size: int,
    ) -> tuple[Tensor, Tensor]:
        ctx.given = weight.dtype, None if bias is None else bias.dtype
        weight = weight.to(hidden.dtype)
        bias = None if bias is None else bias.to(hidden.dtype)
        few = max(1, CACHED_LOGITS // len(weight)) if hidden.device.type == "cpu" else size
        kind = torch.promote_types(hidden.dtype, torch.float32)
        # Made first: small tensors between the large ones would keep the allocator from using the
        # memory of these again, until all logits had been in it.
        log_probs, entropy = (hidden.new_empty(len(labels), dtype=kind) for _ in range(2))
        softmax = _for_device(log_probs_and_entropy, hidden.device)
        for start in range(0, len(hidden), size):
            z = linear(hidden[start : start + size], weight, bias)  # (tokens of the chunk, V)
            for own, logits in _cached(z, few, start):
                log_probs[own], entropy[own] = softmax(logits, labels[own], temperature)
        ctx.save_for_backward(hidden, weight, bias, labels, entropy)
        ctx.temperature, ctx.size, ctx.few = temperature, size, few
        ctx.set_materialize_grads(False)
        return log_probs, entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_log_probs: Tensor | None, of_entropy: Tensor | None) -> Any:
        hidden, weight, bias, labels, entropy = ctx.saved_tensors
        if of_log_probs is None:
            of_log_probs = torch.zeros_like(entropy)
        of_hidden = torch.empty_like(hidden)
        kind = torch.promote_types(weight.dtype, torch.float32)
        trained = ctx.needs_input_grad[1]  # not with LoRA
        of_weight = torch.zeros_like(weight, dtype=kind) if trained else None
        of_bias = None if bias is None else torch.zeros_like(bias, dtype=kind)
        to_gradient = _for_device(_to_gradient, hidden.device)
        for start in range(0, len(hidden), ctx.size):
            rows = slice(start, start + ctx.size)
            z = linear(hidden[rows], weight, bias)  # (tokens of the chunk, V)
            for own, logits in _cached(z, ctx.few, start):
                to_gradient(
                    logits,
                    ctx.temperature,
                    labels[own, None],
                    of_log_probs[own, None],
                    entropy[own, None],
                    None if of_entropy is None else of_entropy[own, None],
                )
            torch.mm(z, weight, out=of_hidden[rows])
            if of_weight is not None and z.dtype == kind:
                of_weight.addmm_(z.T, hidden[rows])
            elif of_weight is not None:
                of_weight.add_(z.T @ hidden[rows])
            if of_bias is not None:
                of_bias.add_(z.sum(0))
        for_weight, for_bias = ctx.given
        of_bias = None if of_bias is None else of_bias.to(for_bias)
        of_weight = None if of_weight is None else of_weight.to(for_weight)
        return of_hidden, of_weight, of_bias, None, None, None


_compiled = functools.cache(torch.compile)


def _for_device(function: Callable[..., Any], device: torch.device) -> Callable[..., Any]:
    """A function of logits as that kind of device computes it."""
    return _compiled(function) if device.type in COMPILED_ON else function


def _cached(z: Tensor, few: int, start: int) -> Iterator[tuple[slice, Tensor]]:
    """A chunk's logits a few tokens at a time, each part with its place among all tokens."""
    for logits in z.split(few):
        yield slice(start, start + len(logits)), logits
        start += len(logits)


def _to_gradient(
    logits: Tensor,
    temperature: float,
    labels: Tensor,
    of_log_probs: Tensor,
    entropy: Tensor,
    of_entropy: Tensor | None,
) -> None:
    """Replace logits (m, V) by the loss's gradient; the other tensors are columns (m, 1)."""
    z = upcast(logits).div_(temperature)
    z.sub_(z.logsumexp(-1, keepdim=True))  # log π
    if of_entropy is None:
        z.exp_().mul_(-of_log_probs)
    else:
        p = z.exp()
        # A forbidden token adds nothing: 0 · log 0.
        z.masked_fill_(p == 0, 0.0).add_(entropy).mul_(of_entropy)
        z.add_(of_log_probs).mul_(p).neg_()
    z.scatter_add_(1, labels, of_log_probs)
    z.div_(temperature)
    if z.dtype != logits.dtype:
        logits.copy_(z)

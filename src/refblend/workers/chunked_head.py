"""The language-model head with its log-probs and entropies, a chunk of tokens at a time.

Logits of a large vocabulary are many times the size of everything else, so they are never kept:
the backward pass computes a chunk's again and turns them, in place, into their own gradient. With
π = softmax(z / T), H its entropy and y the label::

    d log π(y) / d z = (1[y] − π) / T          d H / d z = −π (log π + H) / T
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear

from refblend.ppo.entropy import log_probs_and_entropy
from refblend.ppo.masking import upcast


def chunked_log_probs(
    head: nn.Linear, hidden: Tensor, labels: Tensor, temperature: float, size: int
) -> tuple[Tensor, Tensor]:
    """Log-probs (M,) of ``labels`` and entropies (M,) of the head's distributions, in float32.

    Args:
        head: whose output are the logits.
        hidden: (M, H) the states that predict the labels.
        labels: (M,) token ids.
        temperature: the sampling temperature.
        size: tokens whose logits may be held at once.
    """
    kind = hidden.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else hidden.dtype
    bias = None if head.bias is None else head.bias.to(dtype)
    values: tuple[Tensor, Tensor] = _ChunkedHead.apply(
        hidden.to(dtype), head.weight.to(dtype), bias, labels, temperature, size
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
        parts = [
            log_probs_and_entropy(linear(part, weight, bias), of_part, temperature)
            for part, of_part in zip(hidden.split(size), labels.split(size), strict=True)
        ]
        log_probs, entropy = (torch.cat(column) for column in zip(*parts, strict=True))
        ctx.save_for_backward(hidden, weight, bias, labels, entropy)
        ctx.temperature, ctx.size = temperature, size
        ctx.set_materialize_grads(False)
        return log_probs, entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_log_probs: Tensor | None, of_entropy: Tensor | None) -> Any:
        hidden, weight, bias, labels, entropy = ctx.saved_tensors
        if of_log_probs is None:
            of_log_probs = torch.zeros_like(entropy)
        of_hidden = torch.empty_like(hidden)
        of_weight = upcast(torch.zeros_like(weight))
        of_bias = None if bias is None else upcast(torch.zeros_like(bias))
        for start in range(0, len(hidden), ctx.size):
            rows = slice(start, start + ctx.size)
            # (tokens of the chunk, V): log π, which becomes the gradient of the logits.
            z = upcast(linear(hidden[rows], weight, bias)).div_(ctx.temperature)
            z.sub_(z.logsumexp(-1, keepdim=True))
            if of_entropy is None:
                z.exp_().mul_(-of_log_probs[rows, None])
            else:
                p = z.exp()
                # A forbidden token adds nothing: 0 · log 0.
                z.masked_fill_(p == 0, 0.0).add_(entropy[rows, None]).mul_(of_entropy[rows, None])
                z.add_(of_log_probs[rows, None]).mul_(p).neg_()
            z.scatter_add_(1, labels[rows, None], of_log_probs[rows, None])
            z = z.div_(ctx.temperature).to(weight.dtype)
            torch.mm(z, weight, out=of_hidden[rows])
            if z.dtype == of_weight.dtype:
                of_weight.addmm_(z.T, hidden[rows])
            else:
                of_weight.add_(z.T @ hidden[rows])
            if of_bias is not None:
                of_bias.add_(z.sum(0))
        if of_bias is not None:
            of_bias = of_bias.to(weight.dtype)
        return of_hidden, of_weight.to(weight.dtype), of_bias, None, None, None

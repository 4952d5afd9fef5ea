"""Typed values between the driver and its workers.

Legend: B sequences (prompts × n), T longest response of the batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

COUNTS = ("oom", "nonfinite")
"""Metrics of an update that are incidents, of which a training step has the sum."""


def response_mask(lengths: Sequence[int], width: int | None = None) -> Tensor:
    """Mask (B, T) of ones over each response's tokens; T is the longest length unless given."""
    counts = torch.as_tensor(list(lengths), dtype=torch.long)
    total = int(counts.max()) if width is None and len(counts) else (width or 0)
    return (torch.arange(total)[None, :] < counts[:, None]).float()


def pad_rows(rows: Sequence[Sequence[float]], width: int) -> Tensor:
    """Rows of different lengths as a zero-padded float tensor (B, width)."""
    padded = torch.zeros(len(rows), width)
    for i, row in enumerate(rows):
        padded[i, : len(row)] = torch.as_tensor(row, dtype=torch.float32)
    return padded


@dataclass(frozen=True)
class Sequences:
    """B prompts with their responses, as token ids without padding."""

    prompt_ids: list[list[int]]
    response_ids: list[list[int]]

    def __len__(self) -> int:
        return len(self.prompt_ids)

    @property
    def lengths(self) -> list[int]:
        """Tokens of each sequence, prompt and response together."""
        return [len(p) + len(r) for p, r in zip(self.prompt_ids, self.response_ids, strict=True)]

    @property
    def response_lengths(self) -> list[int]:
        """Tokens of each response."""
        return [len(r) for r in self.response_ids]

    @property
    def response_width(self) -> int:
        """T, the longest response (at least 1, so that tensors are never empty)."""
        return max([1, *self.response_lengths])

    def select(self, rows: Sequence[int]) -> "Sequences":
        """The sequences of these rows, in this order."""
        return Sequences([self.prompt_ids[i] for i in rows], [self.response_ids[i] for i in rows])


Shard = tuple[list[int], tuple[Tensor, ...]]
"""A rank's share of a forward pass: its rows, and matrices (len(rows), …) for them."""


def merge_shards(shards: Sequence[Shard], num_rows: int) -> tuple[Tensor, ...]:
    """Put the rows of all ranks back in the order of the batch: matrices (num_rows, …)."""
    merged = tuple(matrix.new_zeros(num_rows, *matrix.shape[1:]) for matrix in shards[0][1])
    for rows, matrices in shards:
        for whole, part in zip(merged, matrices, strict=True):
            whole[rows] = part
    return merged


@dataclass(frozen=True)
class TokenTensors:
    """Base of update batches: every field is a tensor (B, T) or None."""

    def select(self, rows: Sequence[int], device: torch.device) -> Self:
        """The same fields for these rows, on a device."""
        index = torch.as_tensor(list(rows), dtype=torch.long)
        chosen = {k: v if v is None else v[index].to(device) for k, v in vars(self).items()}
        return type(self)(**chosen)


@dataclass(frozen=True)
class PolicyTargets(TokenTensors):
    """Inputs of the policy update besides the sequences."""

    response_mask: Tensor
    old_log_probs: Tensor
    advantages: Tensor
    ref_log_probs: Tensor | None = None
    importance_weights: Tensor | None = None


@dataclass(frozen=True)
class ValueTargets(TokenTensors):
    """Inputs of the value update besides the sequences."""

    response_mask: Tensor
    values: Tensor
    returns: Tensor


@dataclass(frozen=True)
class MiniBatch:
    """One optimiser step as one rank sees it: its micro-batches and the global denominators."""

    micro_batches: list[list[int]]
    """Row numbers of each micro-batch; an empty one keeps the ranks in step."""
    num_tokens: float
    """Response tokens of the whole mini-batch, over all ranks."""
    num_sequences: int
    """Sequences of the whole mini-batch, over all ranks."""

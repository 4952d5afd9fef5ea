"""A rank's share of a forward pass, and putting the shares of all ranks together."""

from collections.abc import Sequence

import torch
from torch import Tensor

from refblend.workers.types import LogProbs

ShardResult = tuple[list[int], Tensor, Tensor]
"""Rows of one rank, and two matrices (len(rows), T) for them."""


def merge_shards(shards: Sequence[ShardResult], num_rows: int) -> tuple[Tensor, Tensor]:
    """Put the rows of all ranks back in the order of the batch: two matrices (num_rows, T)."""
    width = shards[0][1].shape[1]
    first, second = torch.zeros(num_rows, width), torch.zeros(num_rows, width)
    for rows, a, b in shards:
        first[rows], second[rows] = a, b
    return first, second


def as_log_probs(shards: Sequence[ShardResult], num_rows: int) -> LogProbs:
    """The merged result of ``compute_log_prob`` of all ranks."""
    return LogProbs(*merge_shards(shards, num_rows))

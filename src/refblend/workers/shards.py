"""A rank's share of a forward pass, and putting the shares of all ranks together."""

from collections.abc import Sequence

from torch import Tensor

from refblend.workers.types import LogProbs

Shard = tuple[list[int], tuple[Tensor, ...]]
"""Rows of one rank, and matrices (len(rows), …) for them."""


def merge_shards(shards: Sequence[Shard], num_rows: int) -> tuple[Tensor, ...]:
    """Put the rows of all ranks back in the order of the batch: matrices (num_rows, …)."""
    merged = tuple(matrix.new_zeros(num_rows, *matrix.shape[1:]) for matrix in shards[0][1])
    for rows, matrices in shards:
        for whole, part in zip(merged, matrices, strict=True):
            whole[rows] = part
    return merged


def as_log_probs(shards: Sequence[Shard], num_rows: int) -> LogProbs:
    """The merged result of ``compute_log_prob`` of all ranks."""
    return LogProbs(*merge_shards(shards, num_rows))

"""Cutting a batch into micro-batches of bounded tokens, the same number on every rank.

Pure functions on lengths. FSDP's collectives need all ranks to do the same number of passes, so
a rank with less work gets empty micro-batches at the end.
"""

from collections.abc import Sequence


def pack_by_tokens(
    lengths: Sequence[int], rows: Sequence[int], max_tokens: int, max_rows: int | None = None
) -> list[list[int]]:
    """Group rows so that (rows × longest) stays within ``max_tokens``.

    Rows are sorted by length first, so that little is padded. A row longer than ``max_tokens``
    stands alone: the budget bounds memory, it never drops data.

    Args:
        lengths: tokens of every row of the batch.
        rows: the rows to group.
        max_tokens: budget of a group, padding included.
        max_rows: most rows of a group; None for no bound.
    """
    groups: list[list[int]] = []
    for row in sorted(rows, key=lambda r: (-lengths[r], r)):
        group = groups[-1] if groups else None
        fits = (
            group is not None
            and (len(group) + 1) * lengths[group[0]] <= max_tokens
            and (max_rows is None or len(group) < max_rows)
        )
        if fits and group is not None:
            group.append(row)
        else:
            groups.append([row])
    return groups


def split_over_ranks(lengths: Sequence[int], rows: Sequence[int], ranks: int) -> list[list[int]]:
    """Deal rows to ranks in a snake, longest first: token counts differ by about one row."""
    shares: list[list[int]] = [[] for _ in range(ranks)]
    for position, row in enumerate(sorted(rows, key=lambda r: (-lengths[r], r))):
        turn, place = divmod(position, ranks)
        shares[place if turn % 2 == 0 else ranks - 1 - place].append(row)
    return shares


def plan_micro_batches(
    lengths: Sequence[int],
    rows: Sequence[int],
    ranks: int,
    max_tokens: int,
    max_rows: int | None = None,
) -> list[list[list[int]]]:
    """For each rank its micro-batches; all ranks get equally many."""
    plans = [
        pack_by_tokens(lengths, share, max_tokens, max_rows)
        for share in split_over_ranks(lengths, rows, ranks)
    ]
    most = max(map(len, plans))
    return [plan + [[] for _ in range(most - len(plan))] for plan in plans]


def split_mini_batches(num_rows: int, mini_batch_rows: int | None) -> list[list[int]]:
    """Consecutive rows of each optimiser step; the last one may be smaller."""
    size = mini_batch_rows or num_rows
    return [list(range(i, min(i + size, num_rows))) for i in range(0, num_rows, size)]

"""Splitting a batch into micro-batches with a token budget, equally many on every rank.

FSDP's collectives need all ranks to do the same number of passes, so a rank with less work gets
empty micro-batches. Rows that share a prompt stay together unless they are too many.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from refblend.config.actor_rollout_ref import TrainWorkerConfig
from refblend.workers.types import MiniBatch, Sequences


def pack_by_tokens(
    lengths: Sequence[int], rows: Sequence[int], max_tokens: int, max_rows: int | None = None
) -> list[list[int]]:
    """Group rows, longest first, while (rows × longest) is within ``max_tokens``."""
    groups: list[list[int]] = []
    for row in sorted(rows, key=lambda r: (-lengths[r], r)):
        group = groups[-1] if groups else None
        fits = group and (len(group) + 1) * lengths[group[0]] <= max_tokens
        if group and fits and (max_rows is None or len(group) < max_rows):
            group.append(row)
        else:
            groups.append([row])
    return groups


def split_over_ranks(lengths: Sequence[int], rows: Sequence[int], ranks: int) -> list[list[int]]:
    """Deal rows to ranks in snake order, longest first: token counts differ by about one row."""
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
    prompts: Sequence[Sequence[int]] | None = None,
) -> list[list[list[int]]]:
    """The micro-batches of each rank; all ranks get equally many.

    ``lengths`` are of prompt and response, by row of the batch. ``max_tokens`` counts padding, or
    with ``prompts``, whose rows share their tokens, each prompt once.
    """
    if prompts is None:
        plans = [
            pack_by_tokens(lengths, share, max_tokens, max_rows)
            for share in split_over_ranks(lengths, rows, ranks)
        ]
    else:
        total = sum(part.tokens for part in group_rows(lengths, rows, prompts, 2**62))
        # A rank's share, plus the prompt that splitting repeats.
        fair = -(-total // ranks) + max(len(prompts[r]) for r in rows)
        parts = group_rows(lengths, rows, prompts, min(max_tokens, fair), max_rows)
        plans = [pack_parts(share, max_tokens, max_rows) for share in deal_parts(parts, ranks)]
    most = max(map(len, plans))
    return [plan + [[] for _ in range(most - len(plan))] for plan in plans]


@dataclass(frozen=True)
class Part:
    """Rows of one prompt that are computed together."""

    rows: tuple[int, ...]
    tokens: int
    """Tokens of the layout: the prompt once, and every response."""
    longest: int
    """Tokens of the longest row, to which attention pads the others."""


def group_rows(
    lengths: Sequence[int],
    rows: Sequence[int],
    prompts: Sequence[Sequence[int]],
    max_tokens: int,
    max_rows: int | None = None,
) -> list[Part]:
    """Rows of each prompt, longest first, split where a part (with its prompt) is too large."""
    of_prompt: dict[tuple[int, ...], list[int]] = {}
    for row in sorted(rows, key=lambda r: (-lengths[r], r)):
        of_prompt.setdefault(tuple(prompts[row]), []).append(row)
    parts: list[Part] = []
    for prompt, members in of_prompt.items():
        chosen: list[int] = []
        tokens = len(prompt)
        for row in members:
            more = lengths[row] - len(prompt)
            if chosen and (tokens + more > max_tokens or len(chosen) == max_rows):
                parts.append(Part(tuple(chosen), tokens, lengths[chosen[0]]))
                chosen, tokens = [], len(prompt)
            chosen.append(row)
            tokens += more
        parts.append(Part(tuple(chosen), tokens, lengths[chosen[0]]))
    return parts


def deal_parts(parts: Sequence[Part], ranks: int) -> list[list[Part]]:
    """Each part to the rank with the fewest tokens so far, largest part first."""
    shares: list[list[Part]] = [[] for _ in range(ranks)]
    totals = [0] * ranks
    for part in sorted(parts, key=lambda p: (-p.tokens, p.rows[0])):
        rank = totals.index(min(totals))
        shares[rank].append(part)
        totals[rank] += part.tokens
    return shares


def pack_parts(
    parts: Sequence[Part], max_tokens: int, max_rows: int | None = None
) -> list[list[int]]:
    """Fill micro-batches with parts of similar longest rows; a part's rows stay neighbours."""
    groups: list[list[int]] = []
    tokens = 0
    for part in sorted(parts, key=lambda p: (-p.longest, p.rows[0])):
        room = max_rows is None or not groups or len(groups[-1]) + len(part.rows) <= max_rows
        if groups and room and tokens + part.tokens <= max_tokens:
            groups[-1].extend(part.rows)
            tokens += part.tokens
        else:
            groups.append(list(part.rows))
            tokens = part.tokens
    return groups


def halve_micro_batches(
    micro_batches: Sequence[list[int]], lengths: Sequence[int]
) -> list[list[int]]:
    """Each micro-batch split where its larger part has the fewest tokens; single rows are kept."""
    halves: list[list[int]] = []
    for rows in micro_batches:
        ends = list(accumulate(lengths[row] for row in rows))
        cuts = range(1, len(rows))
        cut = min(cuts, key=lambda c: max(ends[c - 1], ends[-1] - ends[c - 1]), default=len(rows))
        halves += [half for half in (rows[:cut], rows[cut:]) if half]
    return halves


def split_mini_batches(num_rows: int, mini_batch_rows: int | None) -> list[list[int]]:
    """Consecutive rows of each optimiser step; the last one may be smaller."""
    size = mini_batch_rows or num_rows
    return [list(range(i, min(i + size, num_rows))) for i in range(0, num_rows, size)]


def plan_updates(
    config: TrainWorkerConfig,
    sequences: Sequences,
    n: int,
    ranks: int,
    prompts: Sequence[Sequence[int]] | None,
) -> list[list[MiniBatch]]:
    """For each rank the mini-batches of an update with ``n`` responses a prompt, for all epochs."""
    mini_rows = config.ppo_mini_batch_size and config.ppo_mini_batch_size * n
    lengths, answered = sequences.lengths, sequences.response_lengths
    max_rows = None if config.use_dynamic_bsz else config.ppo_micro_batch_size_per_gpu
    budget = config.ppo_max_token_len_per_gpu if config.use_dynamic_bsz else 2**62
    plans: list[list[MiniBatch]] = [[] for _ in range(ranks)]
    for rows in split_mini_batches(len(sequences), mini_rows) * config.ppo_epochs:
        shares = plan_micro_batches(lengths, rows, ranks, budget, max_rows, prompts)
        tokens = float(sum(answered[r] for r in rows))
        count = sum(answered[r] > 0 for r in rows)
        for plan, part in zip(plans, shares, strict=True):
            plan.append(MiniBatch(part, tokens, count))
    return plans

"""Splitting a batch into micro-batches with a token budget, equally many on every rank.

FSDP's collectives need all ranks to do the same number of passes, so a rank with less work gets
empty micro-batches. Rows that share a prompt stay together unless they are too many.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from refblend.config.actor_rollout_ref import TrainWorkerConfig
from refblend.workers.types import MiniBatch, Sequences


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
        parts = [Part((row,), lengths[row], lengths[row]) for row in rows]
    else:
        total = sum(part.tokens for part in group_rows(lengths, rows, prompts, 2**62))
        # A rank's share, plus the prompt that splitting repeats.
        fair = -(-total // ranks) + max(len(prompts[r]) for r in rows)
        parts = group_rows(lengths, rows, prompts, min(max_tokens, fair), max_rows)
    plans = [
        pack_parts(share, max_tokens, max_rows, padded=prompts is None)
        for share in deal_parts(parts, ranks)
    ]
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
    parts: Sequence[Part], max_tokens: int, max_rows: int | None = None, padded: bool = False
) -> list[list[int]]:
    """Fill micro-batches with parts of similar longest rows; a part's rows stay neighbours.

    With ``padded`` every row counts as many tokens as the longest of its micro-batch.
    """
    groups: list[list[int]] = []
    tokens = longest = 0
    for part in sorted(parts, key=lambda p: (-p.longest, p.rows[0])):
        count = len(part.rows) + (len(groups[-1]) if groups else 0)
        cost = count * longest if padded else tokens + part.tokens
        if groups and cost <= max_tokens and (max_rows is None or count <= max_rows):
            groups[-1].extend(part.rows)
            tokens += part.tokens
        else:
            groups.append(list(part.rows))
            tokens, longest = part.tokens, part.longest
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

"""How a batch is dealt out among several engines.

All rows with one key (a prompt, a question) go to one engine, whose prefix cache then serves them.
The keys are dealt out longest first, each to the engine with the least work so far (Graham's LPT
rule). Every request has a seed of its own, so an answer does not depend on its engine: it is the
same bit for bit where the engine's arithmetic does not depend on its batch, as vLLM's on the CPU,
and up to rounding elsewhere.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from refblend.rollout.base import GenerationRequest


@dataclass(frozen=True)
class Work:
    """What a batch of requests is expected to cost, row by row."""

    keys: Sequence[Hashable]
    """Rows with equal keys share a prefix, and so an engine."""
    prefix: Sequence[float]
    """Tokens that the rows of a key have in common: counted once."""
    own: Sequence[float]
    """Tokens of the row itself."""


def split_rows(work: Work, engines: int) -> list[list[int]]:
    """The rows of each engine, in the order of the batch; an engine may get none."""
    rows: dict[Hashable, list[int]] = {}
    for row, key in enumerate(work.keys):
        rows.setdefault(key, []).append(row)

    def cost(key: Hashable) -> float:
        return max(work.prefix[row] for row in rows[key]) + sum(work.own[row] for row in rows[key])

    shares: list[list[int]] = [[] for _ in range(engines)]
    loads = [0.0] * engines
    costs = {key: cost(key) for key in rows}
    for key in sorted(rows, key=lambda key: -costs[key]):
        least = loads.index(min(loads))
        shares[least] += rows[key]
        loads[least] += costs[key]
    return [sorted(share) for share in shares]


def work_of(requests: Sequence[GenerationRequest]) -> Work:
    """What generation is expected to cost; the requests of one prompt share an engine."""
    prompts = [tuple(r.prompt_ids) for r in requests]
    return Work(prompts, list(map(len, prompts)), [r.max_new_tokens for r in requests])

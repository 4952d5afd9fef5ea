"""Responses of an embedded model with the entropy of every distribution they were drawn from.

For building and measuring the embedded models; training and evaluation of the study use the engines
of :mod:`refblend.rollout`. One generator draws for a whole call, so a sample depends on the batch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from refblend.rollout.sampling import sample_tokens

BATCH_SIZE = 256
"""Prompts that are continued together."""


@dataclass
class Output:
    """One continuation, end token included, with its tokens' entropies in nats."""

    token_ids: list[int] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)
    finished: bool = False
    """Whether it ends with the end token."""

    @property
    def mean_entropy(self) -> float:
        """Mean over the tokens: the per-sequence mean that the blend averages."""
        return sum(self.entropies) / max(1, len(self.entropies))


def generate(
    model: Any,
    prompts: Sequence[Sequence[int]],
    eos_id: int,
    max_new_tokens: int,
    temperature: float = 0.0,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> list[Output]:
    """Continue every prompt, batched in order of length; depends on seed and batch size.

    ``temperature`` 0 is greedy, others sample from softmax(logits / T).
    """
    generator = torch.Generator().manual_seed(seed % 2**63)
    outputs = [Output() for _ in prompts]
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    rows: list[int] = []  # of the present batch

    def choose(logits: Tensor, live: list[int]) -> tuple[Tensor, list[int]]:
        """See :data:`refblend.rollout.sampling.Choose`."""
        log_probs = torch.log_softmax(logits / temperature if temperature > 0 else logits, dim=-1)
        entropies = (-(log_probs.exp() * log_probs).sum(-1)).tolist()
        if temperature > 0:
            chosen = torch.multinomial(log_probs.exp(), 1, generator=generator)[:, 0]
        else:
            chosen = log_probs.argmax(-1)
        keep = []
        drawn = zip(live, chosen.tolist(), entropies, strict=True)
        for place, (row, token, entropy) in enumerate(drawn):
            output = outputs[rows[row]]
            output.token_ids.append(token)
            output.entropies.append(entropy)
            output.finished = token == eos_id
            if not output.finished and len(output.token_ids) < max_new_tokens:
                keep.append(place)
        return chosen, keep

    for start in range(0, len(order), BATCH_SIZE):
        rows[:] = order[start : start + BATCH_SIZE]
        sample_tokens(model, [prompts[i] for i in rows], choose)
        if progress is not None:
            progress(start + len(rows))
    return outputs

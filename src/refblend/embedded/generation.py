"""Responses of an embedded model with the entropy of every distribution they were drawn from.

For building and measuring the embedded models; training and evaluation of the study use the engines
of :mod:`refblend.rollout`. One generator draws for a whole call, so a sample depends on the batch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from refblend.rollout.sampling import sample_tokens


@dataclass(frozen=True)
class Sampling:
    """How to generate; ``temperature`` 0 is greedy, others sample from softmax(logits / T)."""

    max_new_tokens: int
    temperature: float = 0.0
    seed: int = 0
    batch_size: int = 256


@dataclass(frozen=True)
class Output:
    """One continuation, end token included, with its tokens' entropies in nats."""

    token_ids: list[int]
    entropies: list[float]
    finished: bool

    @property
    def mean_entropy(self) -> float:
        """Mean over the tokens: the per-sequence mean that the blend averages."""
        return sum(self.entropies) / max(1, len(self.entropies))


def generate(
    model: Any,
    prompts: Sequence[Sequence[int]],
    sampling: Sampling,
    eos_id: int,
    progress: Callable[[int], None] | None = None,
) -> list[Output]:
    """Continue every prompt, batched in order of length; depends on seed and batch size."""
    generator = torch.Generator().manual_seed(sampling.seed % 2**63)
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    outputs: dict[int, Output] = {}
    for start in range(0, len(order), sampling.batch_size):
        rows = order[start : start + sampling.batch_size]
        batch = _Batch(len(rows), sampling, eos_id, generator)
        sample_tokens(model, [prompts[i] for i in rows], batch.choose)
        outputs.update(zip(rows, batch.outputs(), strict=True))
        if progress is not None:
            progress(start + len(rows))
    return [outputs[i] for i in range(len(prompts))]


class _Batch:
    """Draws the tokens of one batch and keeps them with their entropies."""

    def __init__(
        self, size: int, sampling: Sampling, eos_id: int, generator: torch.Generator
    ) -> None:
        self.sampling = sampling
        self.eos_id = eos_id
        self.generator = generator
        self.tokens: list[list[int]] = [[] for _ in range(size)]
        self.entropies: list[list[float]] = [[] for _ in range(size)]

    def choose(self, logits: torch.Tensor, live: list[int]) -> tuple[torch.Tensor, list[int]]:
        """See :data:`refblend.rollout.sampling.Choose`."""
        temperature = self.sampling.temperature
        log_probs = torch.log_softmax(logits / temperature if temperature > 0 else logits, dim=-1)
        entropy = (-(log_probs.exp() * log_probs).sum(-1)).tolist()
        if temperature > 0:
            chosen = torch.multinomial(log_probs.exp(), 1, generator=self.generator)[:, 0]
        else:
            chosen = log_probs.argmax(-1)
        keep = []
        for place, (row, token) in enumerate(zip(live, chosen.tolist(), strict=True)):
            self.tokens[row].append(token)
            self.entropies[row].append(entropy[place])
            if token != self.eos_id and len(self.tokens[row]) < self.sampling.max_new_tokens:
                keep.append(place)
        return chosen, keep

    def outputs(self) -> list[Output]:
        """The continuations in the order of the prompts."""
        return [
            Output(tokens, entropies, tokens[-1] == self.eos_id)
            for tokens, entropies in zip(self.tokens, self.entropies, strict=True)
        ]

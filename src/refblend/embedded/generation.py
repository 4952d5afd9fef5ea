"""Batched generation with a key-value cache, for building and measuring the embedded models.

Training and evaluation of the study use :mod:`refblend.rollout`; this loop exists because the
measurements here also need the full distribution at each position (entropy, digit probabilities),
and because it starts at once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import DynamicCache

Observer = Callable[[list[int], int, torch.Tensor, torch.Tensor], None]


@dataclass(frozen=True)
class Output:
    """One generated continuation; the end token is included when it was written.

    ``entropies`` holds the entropy in nats of the distribution that each token was drawn from.
    """

    token_ids: list[int]
    entropies: list[float]
    finished: bool

    @property
    def mean_entropy(self) -> float:
        """Mean over the tokens, as the spec's masked per-sequence mean."""
        return sum(self.entropies) / max(1, len(self.entropies))


@torch.inference_mode()
def generate(
    model: Any,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int,
    eos_id: int,
    pad_id: int,
    temperature: float = 0.0,
    seed: int = 0,
    batch_size: int = 256,
    observer: Observer | None = None,
    progress: Callable[[int], None] | None = None,
) -> list[Output]:
    """Continue every prompt; ``temperature`` 0 is greedy, others sample from softmax(logits / T).

    Prompts are batched in order of length, padded on the left. The result depends on the seed
    and the batch size. ``observer(rows, position, log_probs, chosen)`` sees each step's
    log-probabilities (len(rows), V) and chosen tokens of the unfinished rows.
    """
    generator = torch.Generator().manual_seed(seed % 2**63)
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    outputs: list[Output | None] = [None] * len(prompts)
    for start in range(0, len(order), batch_size):
        rows = order[start : start + batch_size]
        part = [list(prompts[i]) for i in rows]
        results = _generate_batch(
            model, part, rows, max_new_tokens, eos_id, pad_id, temperature, generator, observer
        )
        for row, result in zip(rows, results, strict=True):
            outputs[row] = result
        if progress is not None:
            progress(start + len(rows))
    return [output for output in outputs if output is not None]


def _generate_batch(
    model: Any,
    prompts: list[list[int]],
    rows: list[int],
    max_new_tokens: int,
    eos_id: int,
    pad_id: int,
    temperature: float,
    generator: torch.Generator,
    observer: Observer | None,
) -> list[Output]:
    width = max(map(len, prompts))
    ids = torch.full((len(prompts), width), pad_id, dtype=torch.long)
    mask = torch.zeros((len(prompts), width), dtype=torch.long)
    for row, prompt in enumerate(prompts):
        ids[row, width - len(prompt) :] = torch.tensor(prompt)
        mask[row, width - len(prompt) :] = 1
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    cache = DynamicCache(config=model.config)
    live = list(range(len(prompts)))  # rows of this batch that are not finished
    tokens: list[list[int]] = [[] for _ in prompts]
    entropies: list[list[float]] = [[] for _ in prompts]
    for position in range(max_new_tokens):
        hidden = model.model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
        ).last_hidden_state[:, -1]
        logits = model.lm_head(hidden).float()
        log_probs = torch.log_softmax(logits / temperature if temperature > 0 else logits, dim=-1)
        entropy = (-(log_probs.exp() * log_probs).sum(-1)).tolist()
        if temperature > 0:
            chosen = torch.multinomial(log_probs.exp(), 1, generator=generator)[:, 0]
        else:
            chosen = log_probs.argmax(-1)
        if observer is not None:
            observer([rows[i] for i in live], position, log_probs, chosen)
        ended = []
        for place, (row, token) in enumerate(zip(live, chosen.tolist(), strict=True)):
            tokens[row].append(token)
            entropies[row].append(entropy[place])
            ended.append(token == eos_id)
        keep = [place for place, done in enumerate(ended) if not done]
        if not keep:
            break
        if len(keep) < len(live):
            kept = torch.tensor(keep)
            live = [live[place] for place in keep]
            cache.batch_select_indices(kept)
            mask, positions, chosen = mask[kept], positions[kept], chosen[kept]
        ids = chosen[:, None]
        mask = torch.cat([mask, torch.ones_like(ids)], dim=1)
        positions = positions[:, -1:] + 1
    return [
        Output(tokens[i], entropies[i], bool(tokens[i]) and tokens[i][-1] == eos_id)
        for i in range(len(prompts))
    ]

"""The supervised training loop of actor and judges: seeded, with progress.

Example ``i`` is a function of its number, and step ``s`` reads examples ``s·B … (s+1)·B − 1``: a
chain of trainings equals one long training. The loss is the weighted mean over the whole batch, so
cutting it into micro-batches does not change the gradient. Sequences are padded on the right, where
causal attention needs no mask.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn import functional
from transformers import DynamicCache

from refblend import runtime
from refblend.embedded.recipe import PhaseRecipe
from refblend.errors import ModelError
from refblend.progress import step_progress

BETAS = (0.9, 0.98)
WEIGHT_DECAY = 0.01
CLIP_NORM = 1.0
TOKEN_BUDGET = 1024  # small parts fit in the cache: 11,400 tokens/s, 8,300 with 4096


@dataclass(frozen=True)
class Example:
    """Token ids and the weight of each token in the loss (0 for the prompt).

    Examples with equal ``n_shared`` > 0 begin with the same tokens, which are computed once.
    """

    token_ids: list[int]
    weights: list[float]
    n_shared: int = 0


@dataclass
class TrainingResult:
    """Result of a training; ``losses`` has one entry per step."""

    seconds: float
    tokens: int
    losses: list[float] = field(default_factory=list)


def make_optimizer(
    model: torch.nn.Module, learning_rate: float, bfloat16: bool = False
) -> torch.optim.AdamW:
    """AdamW without weight decay on vectors (norms and biases); fused where it pays."""
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() <= 1]
    groups = [
        {"params": matrices, "weight_decay": WEIGHT_DECAY},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        groups, lr=learning_rate, betas=BETAS, eps=1e-8, fused=bfloat16 or None
    )


def split_by_tokens(examples: Sequence[Example], budget: int) -> list[list[Example]]:
    """Sort by shared part and length; cut so that a part's own tokens, padded, fit ``budget``."""
    parts: list[list[Example]] = []
    for example in sorted(examples, key=lambda e: (e.n_shared, len(e.token_ids))):
        own = len(example.token_ids) - example.n_shared
        last = parts[-1] if parts else []
        fits = (len(last) + 1) * own <= budget
        if last and last[-1].n_shared == example.n_shared and fits:
            last.append(example)
        else:
            parts.append([example])
    return parts


def weighted_loss(model: Any, examples: Sequence[Example]) -> torch.Tensor:
    """Sum over response tokens of weight × negative log-likelihood (a scalar)."""
    n_shared = examples[0].n_shared
    width = max(len(example.token_ids) for example in examples) - n_shared
    ids = torch.zeros((len(examples), width), dtype=torch.long)  # any token will do for padding
    weights = torch.zeros((len(examples), width))
    for row, example in enumerate(examples):
        own = example.token_ids[n_shared:]
        ids[row, : len(own)] = torch.tensor(own)
        weights[row, : len(own)] = torch.tensor(example.weights[n_shared:])
    cache = None
    if n_shared:  # their keys and values, computed once and repeated for every row
        cache = DynamicCache(config=model.config)
        shared = torch.tensor([examples[0].token_ids[:n_shared]])
        model.model(input_ids=shared, past_key_values=cache, use_cache=True)
        cache.batch_repeat_interleave(len(examples))
    hidden = model.model(
        input_ids=ids[:, :-1], past_key_values=cache, use_cache=cache is not None
    ).last_hidden_state
    targets, weights = ids[:, 1:], weights[:, 1:]
    chosen = weights > 0  # the head runs only where there is a loss
    logits = model.lm_head(hidden[chosen]).float()
    losses = functional.cross_entropy(logits, targets[chosen], reduction="none")
    return (losses * weights[chosen]).sum()


def train(
    model: Any,
    stream: Callable[[int], Example],
    schedule: PhaseRecipe,
    label: str,
    bfloat16: bool = False,
    first_step: int = 0,
    optimizer: torch.optim.AdamW | None = None,
) -> tuple[TrainingResult, torch.optim.AdamW]:
    """Run the schedule on a causal language model in place; ModelError if the loss is not finite.

    ``stream`` gives the example of a number. With ``bfloat16`` passes are in it, weights, gradients
    and optimiser in float32. ``first_step`` and ``optimizer`` continue a chain.
    """
    model.train()
    runtime.keep_freed_memory()
    if bfloat16:  # torch's fused attention goes backward slowly in bfloat16 on the CPU
        model.set_attn_implementation("eager")
    optimizer = optimizer or make_optimizer(model, schedule.learning_rate, bfloat16)
    result = TrainingResult(0.0, 0)
    start = time.monotonic()
    show = step_progress(label, schedule.steps)
    for step in range(first_step, schedule.steps):
        for group in optimizer.param_groups:
            group["lr"] = _learning_rate(schedule, step)
        numbers = range(step * schedule.batch_size, (step + 1) * schedule.batch_size)
        batch = [stream(number) for number in numbers]
        with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
            loss = _update(model, optimizer, batch)
        if loss != loss or loss == float("inf"):
            raise ModelError(f"{label}: the loss is {loss} at step {step}", "Lower learning_rate.")
        result.losses.append(loss)
        result.tokens += sum(len(example.token_ids) for example in batch)
        elapsed = time.monotonic() - start
        show(step + 1, f"loss {loss:.3f}  {result.tokens / elapsed:,.0f} tokens/s")
    result.seconds = time.monotonic() - start
    model.eval()
    return result, optimizer


def _learning_rate(schedule: PhaseRecipe, step: int) -> float:
    """Up over the warm-up, constant, down over the decay: never 0 in a step that is taken."""
    up = (step + 1) / (schedule.warmup_steps + 1)
    down = (schedule.steps - step) / (schedule.decay_steps + 1)
    return schedule.learning_rate * min(1.0, up, down)


def _update(model: Any, optimizer: torch.optim.Optimizer, batch: Sequence[Example]) -> float:
    total_weight = sum(sum(example.weights[1:]) for example in batch)
    optimizer.zero_grad(set_to_none=True)
    total = 0.0
    for part in split_by_tokens(batch, TOKEN_BUDGET):
        loss = weighted_loss(model, part) / total_weight
        loss.backward()
        total += loss.item()
    torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
    optimizer.step()
    return total

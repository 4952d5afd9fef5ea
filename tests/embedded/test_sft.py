from typing import Any

import pytest
import torch

from refblend.embedded.recipe import PhaseRecipe
from refblend.embedded.sft import Example, train, weighted_loss
from refblend.errors import ModelError
from refblend.seeding import derive_generator

SCHEDULE = PhaseRecipe(steps=6, batch_size=4, learning_rate=1e-2, warmup_steps=2)


def stream(number: int) -> Example:
    rng = derive_generator(number)
    length = int(rng.integers(4, 12))
    ids = rng.integers(3, 300, size=length).tolist()
    return Example(ids, [0.0, 0.0] + [1.0] * (length - 2))


def slow_loss(model: Any, example: Example) -> torch.Tensor:
    """One sequence, no padding, token by token."""
    logits = model(input_ids=torch.tensor([example.token_ids])).logits[0]
    total = torch.zeros(())
    for place in range(1, len(example.token_ids)):
        log_probs = torch.log_softmax(logits[place - 1], dim=-1)
        total = total - example.weights[place] * log_probs[example.token_ids[place]]
    return total


def gradient(model: Any) -> torch.Tensor:
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def test_loss_equals_the_slow_sum(model) -> None:
    examples = [stream(i) for i in range(5)]
    examples[0].weights[-1] = 2.5
    slow = sum((slow_loss(model, example) for example in examples), torch.zeros(()))
    torch.testing.assert_close(weighted_loss(model, examples), slow, rtol=1e-5, atol=1e-4)


def test_shared_beginning_gives_the_same_loss_and_gradient(model) -> None:
    head = list(range(10, 30))
    plain = [
        Example(head + stream(i).token_ids, [0.0] * len(head) + stream(i).weights) for i in range(4)
    ]
    shared = [Example(e.token_ids, e.weights, n_shared=len(head)) for e in plain]
    losses, gradients = [], []
    for examples in (plain, shared):
        model.zero_grad()
        loss = weighted_loss(model, examples)
        loss.backward()
        losses.append(loss.detach())
        gradients.append(gradient(model))
    torch.testing.assert_close(*losses, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)


def test_loss_that_is_not_finite_stops(model) -> None:
    with torch.no_grad():
        model.model.norm.weight.fill_(float("nan"))
    with pytest.raises(ModelError, match="the loss is nan at step 0"):
        train(model, stream, SCHEDULE, "test")

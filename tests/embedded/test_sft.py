import copy
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from refblend.embedded import sft
from refblend.embedded.sft import (
    Example,
    Schedule,
    split_by_tokens,
    train,
    weighted_loss,
)
from refblend.errors import ModelError
from refblend.seeding import derive_generator

SCHEDULE = Schedule(last_step=6, batch_size=4, learning_rate=1e-2, warmup_steps=2)


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


def parameters(model: Any) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def gradient(model: Any) -> torch.Tensor:
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def test_loss_equals_the_slow_sum(model: Any) -> None:
    examples = [stream(i) for i in range(5)]
    examples[0].weights[-1] = 2.5
    slow = sum((slow_loss(model, example) for example in examples), torch.zeros(()))
    torch.testing.assert_close(weighted_loss(model, examples, pad_id=0), slow, rtol=1e-5, atol=1e-4)


def test_the_rate_rises_stays_and_falls(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rates = []
    monkeypatch.setattr(
        sft,
        "_update",
        lambda _, optimizer, *__: rates.append(optimizer.param_groups[0]["lr"]) or 1.0,
    )
    schedule = Schedule(last_step=8, batch_size=1, learning_rate=0.6, warmup_steps=2, decay_steps=3)
    train(model, stream, schedule, 0, "rates")
    assert rates == pytest.approx([0.2, 0.4, 0.6, 0.6, 0.6, 0.45, 0.3, 0.15])


def test_shared_beginning_gives_the_same_loss_and_gradient(model: Any) -> None:
    head = list(range(10, 30))
    plain = [
        Example(head + stream(i).token_ids, [0.0] * len(head) + stream(i).weights) for i in range(4)
    ]
    shared = [Example(e.token_ids, e.weights, n_shared=len(head)) for e in plain]
    losses, gradients = [], []
    for examples in (plain, shared):
        model.zero_grad()
        loss = weighted_loss(model, examples, pad_id=0)
        loss.backward()
        losses.append(loss.detach())
        gradients.append(gradient(model))
    torch.testing.assert_close(*losses, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)


@given(
    st.lists(st.tuples(st.integers(3, 40), st.sampled_from([0, 2])), min_size=1, max_size=20),
    st.integers(1, 120),
)
def test_parts_hold_every_example_once_within_the_budget(
    shapes: list[tuple[int, int]], budget: int
) -> None:
    examples = [Example([i] * n, [1.0] * n, shared) for i, (n, shared) in enumerate(shapes)]
    parts = split_by_tokens(examples, budget)
    assert sorted(e.token_ids[0] for part in parts for e in part) == list(range(len(examples)))
    for part in parts:
        assert len({e.n_shared for e in part}) == 1
        width = max(len(e.token_ids) - e.n_shared for e in part)
        assert len(part) == 1 or width * len(part) <= budget


def test_cutting_into_parts_does_not_change_the_result(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = []
    for budget in (1, 10_000):
        monkeypatch.setattr(sft, "TOKEN_BUDGET", budget)
        other = copy.deepcopy(model)
        train(other, stream, SCHEDULE, 0, "test")
        results.append(parameters(other))
    torch.testing.assert_close(*results, rtol=1e-3, atol=1e-4)


def test_training_lowers_the_loss_and_is_reproducible(model: Any) -> None:
    other = copy.deepcopy(model)
    schedule = Schedule(last_step=30, batch_size=4, learning_rate=1e-2)
    few = [stream(i) for i in range(4)]
    result, _ = train(model, lambda i: few[i % 4], schedule, 0, "test")
    train(other, lambda i: few[i % 4], schedule, 0, "test")
    assert result.losses[-1] < 0.7 * result.losses[0]
    assert torch.equal(parameters(model), parameters(other))


def test_chain_of_two_equals_one_training(model: Any) -> None:
    straight, chain = copy.deepcopy(model), copy.deepcopy(model)
    train(straight, stream, SCHEDULE, 0, "test")
    first = Schedule(3, 4, 1e-2, 2)
    _, optimizer = train(chain, stream, first, 0, "test")
    second = Schedule(6, 4, 1e-2, 2, first_step=3)
    train(chain, stream, second, 0, "test", optimizer=optimizer)
    assert torch.equal(parameters(chain), parameters(straight))


def test_loss_that_is_not_finite_stops(model: Any) -> None:
    with torch.no_grad():
        model.model.norm.weight.fill_(float("nan"))
    with pytest.raises(ModelError, match="the loss is nan at step 0"):
        train(model, stream, SCHEDULE, 0, "test")

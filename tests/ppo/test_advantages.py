"""Every estimator against loops over Python numbers, written from the papers' equations."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from refblend.ppo.advantages import (
    compute_gae_advantage_return,
    compute_grpo_outcome_advantage,
    compute_remax_outcome_advantage,
    compute_rloo_outcome_advantage,
    group_numbers,
)
from refblend.ppo.estimators import ESTIMATORS, AdvantageInputs
from refblend.ppo.masking import masked_whiten

FRACTION = st.floats(0, 1)


@st.composite
def batches(draw):
    """Rewards, values, mask (empty, full and holed rows), and a group for each row."""
    shape = draw(hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=6))
    # hundredths: differences within a group are then 0 or at least 0.01
    matrix = hnp.arrays(np.int64, shape, elements=st.integers(-500, 500)).map(lambda x: x / 100)
    mask = draw(hnp.arrays(np.bool_, shape))
    index = draw(hnp.arrays(np.int64, shape[:1], elements=st.integers(0, 2)))
    return draw(matrix), draw(matrix), mask, index


def positions(mask, b):
    return [t for t in range(mask.shape[1]) if mask[b, t]]


def slow_whiten(matrix, mask):
    chosen = [matrix[b][t] for b in range(mask.shape[0]) for t in positions(mask, b)]
    mean = sum(chosen) / len(chosen)
    variance = sum((x - mean) ** 2 for x in chosen) / (len(chosen) - 1)
    result = np.zeros(mask.shape)
    for b in range(mask.shape[0]):
        for t in positions(mask, b):
            result[b, t] = (matrix[b][t] - mean) / math.sqrt(variance + 1e-8)
    return result


def on_tokens(per_row, mask):
    return np.where(mask, np.asarray(per_row)[:, None], 0.0)


def slow_gae(rewards, values, mask, gamma, lam):
    raw, returns = np.zeros(mask.shape), np.zeros(mask.shape)
    for b in range(mask.shape[0]):
        steps = positions(mask, b)  # a response without what the mask leaves out
        for i, t in enumerate(steps):
            # equation 16 of the paper, as a sum and not as a recursion
            for k in range(i, len(steps)):
                following = values[b, steps[k + 1]] if k + 1 < len(steps) else 0.0
                delta = rewards[b, steps[k]] + gamma * following - values[b, steps[k]]
                raw[b, t] += (gamma * lam) ** (k - i) * delta
            returns[b, t] = raw[b, t] + values[b, t]
    return raw, returns


def slow_to_go(rewards, mask, gamma):
    """Discounted sums of what follows."""
    returns = np.zeros(mask.shape)
    for b in range(mask.shape[0]):
        steps = positions(mask, b)
        for i, t in enumerate(steps):
            later = range(i, len(steps))
            returns[b, t] = sum(gamma ** (k - i) * rewards[b, steps[k]] for k in later)
    return returns


def slow_within_group(name, scores, index, b, divide):
    """What a score is beside those of its group, of one response or of several."""
    group = [scores[i] for i in range(len(index)) if index[i] == index[b]]
    size = len(group)
    mean = sum(group) / size if size > 1 else 0.0
    if name == "rloo":  # the mean of the others
        return scores[b] - ((sum(group) - scores[b]) / (size - 1) if size > 1 else 0.0)
    if name == "grpo" and divide:
        variance = sum((s - mean) ** 2 for s in group) / (size - 1) if size > 1 else 1.0
        return (scores[b] - mean) / (math.sqrt(variance) + 1e-6)
    return scores[b] - mean


WHITENED = ("gae", "reinforce_plus_plus", "reinforce_plus_plus_baseline")


@pytest.mark.parametrize("name", ESTIMATORS)
@given(case=batches(), gamma=FRACTION, lam=FRACTION, divide=st.booleans())
def test_every_estimator_is_its_formula(name, case, gamma, lam, divide):
    rewards, values, mask, index = case
    baselines = values[:, 0]
    r, v, base, m = (torch.tensor(a) for a in (rewards, values, baselines, mask))
    inputs = AdvantageInputs(r, m, index, v, base, gamma, lam, divide)
    if name in WHITENED and mask.sum() < 2:
        with pytest.raises(ValueError, match="at least two response tokens"):
            ESTIMATORS[name](inputs)
        return
    scores = [sum(rewards[b, t] for t in positions(mask, b)) for b in range(mask.shape[0])]
    returns = None
    if name == "gae":
        raw, returns = slow_gae(rewards, values, mask, gamma, lam)
    elif name == "reinforce_plus_plus":
        raw = returns = slow_to_go(rewards, mask, gamma)
    elif name == "remax":
        raw, returns = on_tokens(scores - baselines, mask), slow_to_go(rewards, mask, 1.0)
    else:
        rows = range(len(scores))
        raw = on_tokens([slow_within_group(name, scores, index, b, divide) for b in rows], mask)
    advantages = slow_whiten(raw, mask) if name in WHITENED else raw
    wanted = advantages, advantages if returns is None else returns
    for tensor, expected in zip(ESTIMATORS[name](inputs), wanted, strict=True):
        np.testing.assert_allclose(tensor.numpy(), expected, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("score", [0.1, 1 / 3, 1e6 + 0.1])
@pytest.mark.parametrize("size", [2, 3, 7, 8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_group_of_equal_scores_has_exactly_no_signal(score, size, dtype):
    rewards = torch.full((size, 1), score, dtype=dtype)
    ones = torch.ones(size, 1)
    for compute in (compute_grpo_outcome_advantage, compute_rloo_outcome_advantage):
        advantages, _ = compute(rewards, ones, ["p"] * size)
        assert torch.equal(advantages, torch.zeros(size, 1, dtype=dtype))


@pytest.mark.parametrize("level", [1000.0, 0.1, -1e6])
def test_equal_advantages_whiten_to_zero(level):
    whitened = masked_whiten(torch.full((8, 7), level), torch.ones(8, 7))
    assert whitened.abs().max().item() < 1e-3


MASK = torch.tensor([[1, 1, 1], [1, 0, 0], [0, 0, 0], [1, 1, 0]])


def estimated(name, rewards, mask=MASK):
    """Two groups of two; critic and greedy responses have 0 throughout."""
    nothing = torch.zeros_like(rewards), torch.zeros(4)
    return ESTIMATORS[name](AdvantageInputs(rewards, mask, [0, 0, 1, 1], *nothing, 0.9, 0.9))


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("garbage", [math.nan, math.inf, 1e30])
def test_what_stands_at_masked_positions_is_ignored(name, garbage):
    rewards = torch.arange(12.0).reshape(4, 3)
    dirty = torch.where(MASK.bool(), rewards, torch.tensor(garbage))
    for clean, got in zip(estimated(name, rewards), estimated(name, dirty), strict=True):
        assert torch.equal(clean, got)
        assert (got[~MASK.bool()] == 0).all()


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mask_type", [torch.bool, torch.int64, torch.float32])
def test_dtypes(name, dtype, mask_type):
    rewards = torch.tensor([[0.0, 0.0, 1.0], [0.5, 0, 0], [0, 0, 0], [0, 0.25, 0]], dtype=dtype)
    for got in estimated(name, rewards, MASK.to(mask_type)):
        assert got.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        assert not got.requires_grad
    want = estimated(name, rewards.double())[0]
    torch.testing.assert_close(estimated(name, rewards)[0].double(), want, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_extreme_rewards_stay_finite(name):
    rewards = torch.tensor([[1e18, -1e18, 0], [-1e18, 0, 0], [0, 0, 0], [1e-30, 0, 0]])
    for got in estimated(name, rewards):
        assert got.isfinite().all()


@pytest.mark.parametrize(
    "index",
    [
        ["a", "a", "b", "a"],
        np.array(["a", "a", "b", "a"], dtype=object),
        torch.tensor([7, 7, 3, 7]),
    ],
)
def test_group_ids_of_any_kind(index):
    assert group_numbers(index, 4).tolist() == [0, 0, 1, 0]


def test_wrong_sizes_are_refused():
    with pytest.raises(ValueError, match="3 group ids for 4 rows"):
        compute_grpo_outcome_advantage(torch.ones(4, 3), MASK, [0, 0, 1])
    with pytest.raises(ValueError, match="one value for each of the 4 rows"):
        compute_remax_outcome_advantage(torch.ones(4, 3), torch.ones(4, 1), MASK)
    with pytest.raises(ValueError, match="one shape"):
        compute_gae_advantage_return(torch.ones(4, 3), torch.ones(4), MASK)

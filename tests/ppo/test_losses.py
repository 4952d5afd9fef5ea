import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from refblend.ppo.losses import LOSS_AGG_MODES, agg_loss, compute_policy_loss, compute_value_loss

MODES = st.sampled_from(LOSS_AGG_MODES)


@st.composite
def batches(draw, columns=3):
    shape = draw(hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=6))
    matrix = hnp.arrays(np.float64, shape, elements=st.floats(-3, 3))
    return [draw(matrix) for _ in range(columns)], draw(hnp.arrays(np.bool_, shape))


def slow_agg(losses, mask, mode):
    rows = [[losses[b][t] for t in range(mask.shape[1]) if mask[b, t]] for b in range(len(mask))]
    rows = [row for row in rows if row]
    if not rows:
        return 0.0
    if mode == "token-mean":
        return sum(map(sum, rows)) / sum(map(len, rows))
    if mode == "seq-mean-token-mean":
        return sum(sum(row) / len(row) for row in rows) / len(rows)
    total = sum(map(sum, rows)) / len(rows)
    return total / mask.shape[1] if mode == "seq-mean-token-sum-norm" else total


def slow_policy_loss(old, new, advantage, low, high, c):
    """One token: PPO's equation 7 negated, DAPO's two epsilons, dual clip's equation 5."""
    ratio = math.exp(min(max(new - old, -20), 20))
    clipped = 1 - low if ratio < 1 - low else 1 + high if ratio > 1 + high else ratio
    objective = min(ratio * advantage, clipped * advantage)
    if advantage < 0 and c is not None:
        objective = max(objective, c * advantage)
    return -objective


@given(batches(1), MODES)
def test_aggregation(case, mode):
    (losses,), mask = case
    got = agg_loss(torch.tensor(losses), torch.tensor(mask), mode)
    assert got.item() == pytest.approx(slow_agg(losses, mask, mode), abs=1e-9)


@given(batches(4), MODES, st.floats(0, 0.9), st.floats(0, 0.9), st.sampled_from([None, 1.5, 3.0]))
def test_policy_loss(case, mode, low, high, c):
    (old, new, advantages, weights), mask = case
    token = np.vectorize(lambda o, n, a: slow_policy_loss(o, n, a, low, high, c))
    got = compute_policy_loss(
        old_log_prob=torch.tensor(old),
        log_prob=torch.tensor(new),
        advantages=torch.tensor(advantages),
        response_mask=torch.tensor(mask),
        cliprange_low=low,
        cliprange_high=high,
        clip_ratio_c=c,
        loss_agg_mode=mode,
        importance_weights=torch.tensor(np.abs(weights)),
    )
    expected = slow_agg(np.abs(weights) * token(old, new, advantages), mask, mode)
    assert got[0].item() == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert got.loss is got[0]
    kl = slow_agg(old - new, mask, "token-mean")
    assert got.ppo_kl.item() == pytest.approx(kl, abs=1e-9)


def test_clip_fractions_count_where_each_clip_decides():
    ratio = torch.tensor([[1.5, 0.5, 1.5, 0.5, 9.0, 1.1]])
    advantages = torch.tensor([[1.0, 1.0, -1.0, -1.0, -1.0, 1.0]])
    # clipped: up with A > 0, down with A < 0; dual: ratio above c with A < 0
    got = compute_policy_loss(
        torch.zeros(1, 6), ratio.log(), advantages, torch.ones(1, 6), 0.2, 0.2, 3.0
    )
    assert got.clipfrac.item() == pytest.approx(2 / 6)
    assert got.clipfrac_lower.item() == pytest.approx(1 / 6)
    expected = [-1.2, -0.5, 1.5, 0.8, 3.0, -1.1]
    assert got.loss.item() == pytest.approx(sum(expected) / 6)


def test_only_the_new_log_probs_are_learned_from():
    leaves = [torch.randn(2, 3, requires_grad=True) for _ in range(4)]
    new, old, advantages, weights = leaves
    compute_policy_loss(
        old, new, advantages, torch.ones(2, 3), importance_weights=weights
    ).loss.backward()
    assert [leaf.grad for leaf in leaves[1:]] == [None, None, None]


@given(batches(), MODES, st.floats(0.01, 2))
def test_value_loss(case, mode, clip):
    (new, returns, old), mask = case

    def token(v, r, o):
        near = o - clip if v < o - clip else o + clip if v > o + clip else v
        return 0.5 * max((v - r) ** 2, (near - r) ** 2)

    got = compute_value_loss(
        vpreds=torch.tensor(new),
        returns=torch.tensor(returns),
        values=torch.tensor(old),
        response_mask=torch.tensor(mask),
        cliprange_value=clip,
        loss_agg_mode=mode,
    )
    expected = slow_agg(np.vectorize(token)(new, returns, old), mask, mode)
    assert got[0].item() == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert 0 <= got.clipfrac.item() <= 1


@given(batches(), MODES, st.integers(1, 3), st.data())
def test_micro_batches_add_up_to_the_whole(case, mode, parts, data):
    """Any split of the rows, each part cut to its own width, as micro-batches and ranks are."""
    arrays, mask = case
    counts = {
        "batch_num_tokens": int(mask.sum()),
        "global_batch_size": int(mask.any(axis=1).sum()),
        "loss_scale_factor": mask.shape[1],
    }
    places = data.draw(st.lists(st.integers(0, parts - 1), min_size=len(mask), max_size=len(mask)))
    weights = np.abs(arrays[0])

    def results(rows, **kwargs):
        width = max([1, *(1 + int(np.flatnonzero(mask[r]).max(initial=0)) for r in rows)])
        leaf = torch.tensor(arrays[1], requires_grad=True)
        cut = [torch.tensor(a)[rows, :width] for a in (*arrays, weights, mask)]
        old, _, advantages, w, m = cut
        new = leaf[rows, :width]
        policy = compute_policy_loss(
            old, new, advantages, m, loss_agg_mode=mode, importance_weights=w, **kwargs
        )
        value = compute_value_loss(new, advantages, old, m, 0.5, mode, **kwargs)
        kl = agg_loss(new.square(), m, mode, **kwargs)
        (policy.loss + 2 * value.loss + 5 * kl).backward()
        figures = torch.stack([*policy, *value, kl]).detach()
        return figures, leaf.grad

    everything = list(range(len(mask)))
    whole, whole_gradient = results(everything, loss_scale_factor=mask.shape[1])
    shares = [[r for r in everything if places[r] == p] for p in range(parts)]
    split = [results(rows, **counts) for rows in shares]
    torch.testing.assert_close(sum(s[0] for s in split), whole, atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(sum(s[1] for s in split), whole_gradient, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("mode", LOSS_AGG_MODES)
def test_gradcheck(mode):
    generator = torch.Generator().manual_seed(3)
    old, new, advantages, weights = torch.randn(4, 3, 4, dtype=torch.float64, generator=generator)
    mask = torch.tensor([[1, 1, 1, 1], [0, 0, 0, 0], [1, 0, 1, 0]])
    new.requires_grad_()

    def policy(x):
        return compute_policy_loss(
            old, x, advantages, mask, 0.2, 0.28, 3.0, mode, importance_weights=weights.abs()
        ).loss

    assert torch.autograd.gradcheck(policy, (new,))
    assert torch.autograd.gradcheck(
        lambda x: compute_value_loss(x, advantages, old, mask, 0.5, mode).loss, (new,)
    )
    assert torch.autograd.gradcheck(lambda x: agg_loss(x.square(), mask, mode), (new,))


@pytest.mark.parametrize("mode", LOSS_AGG_MODES)
def test_an_all_masked_batch_gives_zero_with_a_zero_gradient(mode):
    new = torch.full((2, 3), math.nan, requires_grad=True)
    nan, mask = new.detach(), torch.zeros(2, 3)
    for loss in (
        compute_policy_loss(nan, new, nan, mask, loss_agg_mode=mode).loss,
        compute_value_loss(new, nan, nan, mask, 0.5, mode).loss,
    ):
        assert loss.item() == 0.0
        (gradient,) = torch.autograd.grad(loss, new)
        assert torch.equal(gradient, torch.zeros(2, 3))


@pytest.mark.parametrize("shape", [(0, 4), (2, 0), (0, 0)])
@pytest.mark.parametrize("mode", LOSS_AGG_MODES)
def test_empty_micro_batches(mode, shape):
    empty = torch.zeros(shape, requires_grad=True)
    loss = compute_policy_loss(empty, empty, empty, empty, loss_agg_mode=mode).loss
    assert loss.item() == 0.0
    loss.backward()


def test_masked_garbage_reaches_neither_loss_nor_gradient():
    new = torch.tensor([[0.1, math.inf], [0.2, math.nan]], requires_grad=True)
    old = torch.tensor([[0.0, math.nan], [0.0, -math.inf]])
    mask = torch.tensor([[1, 0], [1, 0]])
    got = compute_policy_loss(old, new, torch.ones(2, 2), mask)
    got.loss.backward()
    assert all(x.isfinite() for x in got)
    assert new.grad.isfinite().all()
    assert new.grad[:, 1].tolist() == [0.0, 0.0]


@pytest.mark.parametrize(("old", "new"), [(0.0, -1e4), (-1e4, 0.0)])
@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_extreme_ratios_stay_finite(old, new, advantage):
    log_prob = torch.tensor([[new]], requires_grad=True)
    args = (torch.tensor([[old]]), log_prob, torch.tensor([[advantage]]), torch.ones(1, 1))
    loss = compute_policy_loss(*args).loss
    loss.backward()
    assert loss.isfinite()
    assert log_prob.grad.isfinite().all()
    assert loss.item() <= 3.0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_low_precision_inputs_are_reduced_in_float32(dtype):
    x = torch.randn(4, 300).to(dtype)
    mask = torch.ones(4, 300, dtype=torch.bool)
    got = compute_policy_loss(x, x, x, mask).loss
    assert got.dtype == torch.float32
    assert got.item() == pytest.approx(-x.double().mean().item(), abs=1e-6)


def test_parameters_out_of_range_are_refused():
    x = torch.ones(1, 2)
    for kwargs in (
        {"cliprange_low": -0.1},
        {"cliprange_low": 1.1},
        {"cliprange_high": -0.1},
        {"clip_ratio_c": 1.0},
        {"loss_agg_mode": "mean"},
    ):
        with pytest.raises(ValueError, match=next(iter(kwargs))):
            compute_policy_loss(x, x, x, x, **kwargs)
    with pytest.raises(ValueError, match="cliprange_value"):
        compute_value_loss(x, x, x, x, -1.0)
    with pytest.raises(ValueError, match="one shape"):
        agg_loss(x, torch.ones(2, 2))

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from refblend.ppo.blending import (
    PLACEMENTS,
    blend_rewards,
    compute_avg_response_entropy,
    expand_quality,
    shuffle_scores,
)
from refblend.seeding import derive_generator


@st.composite
def batches(draw):
    """Two float matrices, a score a row, and a mask whose rows may be empty, full or holed."""
    shape = draw(hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=6))
    matrix = hnp.arrays(np.float64, shape, elements=st.floats(-1e3, 1e3))
    scores = hnp.arrays(np.float64, shape[:1], elements=st.floats(0, 1))
    return draw(matrix), draw(matrix), draw(scores), draw(hnp.arrays(np.bool_, shape))


@given(batches())
def test_average_entropy_is_the_mean_over_sequences_of_the_sequence_mean(case):
    entropy, _, _, mask = case
    means = []
    for b in range(mask.shape[0]):
        total = sum(entropy[b, t] for t in range(mask.shape[1]) if mask[b, t])
        means.append(total / max(1, int(mask[b].sum())))
    got = compute_avg_response_entropy(torch.tensor(entropy), torch.tensor(mask))
    assert got.dim() == 0
    assert got.item() == pytest.approx(sum(means) / len(means), abs=1e-9)


def test_average_entropy_of_nothing():
    assert compute_avg_response_entropy(torch.ones(2, 3), torch.zeros(2, 3)).item() == 0.0
    assert compute_avg_response_entropy(torch.ones(2, 0), torch.zeros(2, 0)).item() == 0.0
    with pytest.raises(ValueError, match="without sequences"):
        compute_avg_response_entropy(torch.ones(0, 3), torch.zeros(0, 3))


@given(batches(), st.sampled_from(PLACEMENTS))
def test_placement(case, placement):
    _, _, scores, mask = case
    got = expand_quality(torch.tensor(scores), torch.tensor(mask), placement)
    for b in range(mask.shape[0]):
        places = [t for t in range(mask.shape[1]) if mask[b, t]]
        for t in range(mask.shape[1]):
            if t not in places:
                expected = 0.0
            elif placement == "per_token":
                expected = scores[b]
            elif placement == "terminal":
                expected = scores[b] if t == places[-1] else 0.0
            else:
                expected = scores[b] / len(places)
            assert got[b, t].item() == pytest.approx(expected, abs=1e-12)
        if places and placement != "per_token":
            assert got[b].sum().item() == pytest.approx(scores[b])


@pytest.mark.parametrize("mask_type", [torch.bool, torch.int64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("score_type", [torch.float32, torch.bfloat16, torch.int64])
def test_placement_accepts_any_dtype(mask_type, score_type):
    mask = torch.tensor([[1, 1, 0]]).to(mask_type)
    got = expand_quality(torch.tensor([1]).to(score_type), mask, "terminal")
    assert got.tolist() == [[0.0, 1.0, 0.0]]
    assert got.dtype == torch.float32


def test_placement_errors():
    with pytest.raises(ValueError, match="per_token, terminal"):
        expand_quality(torch.ones(2), torch.ones(2, 3), "first")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="one value for each"):
        expand_quality(torch.ones(3), torch.ones(2, 3))


@given(batches(), st.floats(0, 1))
def test_blend(case, weight):
    rewards, quality, _, mask = case
    got = blend_rewards(torch.tensor(rewards), torch.tensor(quality), torch.tensor(mask), weight)
    for place in np.ndindex(mask.shape):
        r, q = rewards[place], quality[place]
        expected = (1 - weight) * r + weight * q if mask[place] else 0.0
        assert got[place].item() == pytest.approx(expected, abs=1e-9)


@given(batches())
def test_the_ends_of_the_blend_are_exact(case):
    rewards, quality, _, mask = (torch.tensor(x) for x in case)
    zeros = torch.zeros_like(rewards)
    baseline = torch.where(mask, rewards, zeros)
    assert torch.equal(blend_rewards(rewards, quality, mask, 0.0), baseline)
    assert torch.equal(
        blend_rewards(rewards, quality, mask, 1.0), torch.where(mask, quality, zeros)
    )


def test_a_weight_for_each_row():
    got = blend_rewards(
        torch.ones(2, 2), torch.zeros(2, 2), torch.ones(2, 2), torch.tensor([0.0, 0.25])
    )
    assert got.tolist() == [[1.0, 1.0], [0.75, 0.75]]


@pytest.mark.parametrize(
    ("weight", "says"),
    [
        *((bad, r"\[0, 1\]") for bad in (-0.1, 1.1, math.nan, torch.tensor([0.5, 2.0]))),
        *((bad, "one for each row") for bad in (torch.ones(3), torch.ones(2, 2))),
    ],
)
def test_a_weight_outside_the_unit_interval_or_of_another_shape_is_refused(weight, says):
    with pytest.raises(ValueError, match=says):
        blend_rewards(torch.ones(2, 2), torch.ones(2, 2), torch.ones(2, 2), weight)


def test_masked_garbage_does_not_leak():
    bad = torch.tensor([[1.0, math.nan]])
    mask = torch.tensor([[1, 0]])
    assert blend_rewards(bad, bad, mask, 0.5).tolist() == [[1.0, 0.0]]
    assert compute_avg_response_entropy(bad, mask).item() == 1.0


def test_shuffled_scores_keep_their_distribution_and_follow_the_seed():
    scores = torch.linspace(0, 1, 64)
    first = shuffle_scores(scores, derive_generator(1, "shuffle", 5))
    assert torch.equal(first, shuffle_scores(scores, derive_generator(1, "shuffle", 5)))
    assert not torch.equal(first, shuffle_scores(scores, derive_generator(1, "shuffle", 6)))
    assert not torch.equal(first, scores)
    assert torch.equal(first.sort().values, scores)

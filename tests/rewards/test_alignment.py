import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from refblend.rewards.alignment import alignment_bonus, alignment_weight, cosine_similarity


@st.composite
def states(draw):
    shape = draw(hnp.array_shapes(min_dims=3, max_dims=3, min_side=1, max_side=4))
    numbers = st.integers(-20, 20).map(float)
    hidden = hnp.arrays(np.float64, shape, elements=numbers)
    return draw(hidden), draw(hidden), draw(hnp.arrays(np.bool_, shape[:2]))


@given(states(), st.floats(0, 2))
def test_the_bonus_against_the_definition(case, weight):
    response, gold, mask = case
    rows, length, width = response.shape

    def mean(hidden, b):
        chosen = [hidden[b, t] for t in range(length) if mask[b, t]]
        return [sum(h[i] for h in chosen) / max(1, len(chosen)) for i in range(width)]

    pooled = [torch.tensor([mean(h, b) for b in range(rows)]) for h in (response, gold)]
    bonus = alignment_bonus(cosine_similarity(*pooled), torch.tensor(mask), weight)
    for b in range(rows):
        u, v = mean(response, b), mean(gold, b)
        norms = math.sqrt(sum(x * x for x in u)) * math.sqrt(sum(x * x for x in v))
        cosine = sum(x * y for x, y in zip(u, v, strict=True)) / norms if norms > 0 else 0.0
        for t in range(length):
            expected = weight * cosine / mask[b].sum() if mask[b, t] else 0.0
            assert bonus[b, t].item() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_cosine_at_any_scale(scale):
    u = torch.tensor([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0], [0.0, 0.0]]) * scale
    v = torch.tensor([[0.0, 1.0], [2.0, 2.0], [-1.0, -2.0], [1.0, 1.0]])
    assert cosine_similarity(u, v).tolist() == pytest.approx([0.0, 1.0, -1.0, 0.0], abs=1e-6)


@pytest.mark.parametrize(
    ("entropy", "step", "warmup", "expected"),
    [(0.31, 9, 0, 0.0), (0.32, 9, 0, 0.1), (2.0, 9, 0, 0.1), (2.0, 1, 4, 0.025), (2.0, 8, 4, 0.1)],
)
def test_trigger_and_schedule(entropy, step, warmup, expected):
    assert alignment_weight(entropy, step, 0.1, warmup) == pytest.approx(expected)
    assert alignment_weight(torch.tensor(entropy + 1e-4), step, 0.1, warmup) >= expected


def test_errors():
    for kwargs in ({"weight": -1.0}, {"entropy_high_threshold": 0.0}):
        with pytest.raises(ValueError, match="repr_align"):
            alignment_weight(0.5, 1, **kwargs)
    with pytest.raises(ValueError, match="NaN"):
        alignment_weight(math.nan, 1)
    with pytest.raises(ValueError, match="one value for each"):
        alignment_bonus(torch.ones(2), torch.ones(3, 4), 0.1)
    with pytest.raises(ValueError, match="one shape"):
        cosine_similarity(torch.ones(2, 3), torch.ones(2, 4))

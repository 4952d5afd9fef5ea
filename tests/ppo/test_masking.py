import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from refblend.ppo.masking import masked_mean, masked_sum, masked_var, masked_whiten

SHAPES = hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=6)


@st.composite
def masked_values(draw):
    shape = draw(SHAPES)
    values = draw(hnp.arrays(np.float64, shape, elements=st.floats(-1e6, 1e6)))
    mask = draw(hnp.arrays(np.bool_, shape))
    return values, mask


@given(masked_values())
def test_sum_and_mean_of_the_selected(case):
    values, mask = case
    total, count = 0.0, 0
    for v, m in zip(values.flat, mask.flat, strict=True):
        if m:
            total, count = total + v, count + 1
    x, m = torch.tensor(values), torch.tensor(mask)
    assert masked_sum(x, m).item() == pytest.approx(total, abs=1e-6)
    assert masked_mean(x, m).item() == pytest.approx(total / count if count else 0.0, abs=1e-6)
    for row in range(values.shape[0]):
        chosen = [v for v, s in zip(values[row], mask[row], strict=True) if s]
        expected = sum(chosen) / len(chosen) if chosen else 0.0
        assert masked_mean(x, m, dim=-1)[row].item() == pytest.approx(expected, abs=1e-6)


@given(masked_values())
def test_whitening_against_the_textbook(case):
    values, mask = case
    chosen = [v for v, m in zip(values.flat, mask.flat, strict=True) if m]
    x, m = torch.tensor(values), torch.tensor(mask)
    if len(chosen) < 2:
        with pytest.raises(ValueError, match="at least two"):
            masked_whiten(x, m)
        with pytest.raises(ValueError, match="at least two"):
            masked_var(x, m)
        return
    mean = sum(chosen) / len(chosen)
    variance = sum((v - mean) ** 2 for v in chosen) / (len(chosen) - 1)
    assert masked_var(x, m).item() == pytest.approx(variance, rel=1e-9, abs=1e-9)
    white = masked_whiten(x, m)
    for b, t in np.ndindex(values.shape):
        expected = (values[b, t] - mean) / math.sqrt(variance + 1e-8) if mask[b, t] else 0.0
        assert white[b, t].item() == pytest.approx(expected, rel=1e-6, abs=1e-5)


@pytest.mark.parametrize("level", [1000.0, 0.1, -1e6])
def test_equal_values_whiten_to_zero(level):
    values = torch.full((8, 7), level)
    assert masked_whiten(values, torch.ones(8, 7)).abs().max().item() < 1e-3

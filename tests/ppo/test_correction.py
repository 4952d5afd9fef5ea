import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from refblend.ppo.correction import importance_weights, mismatch_metrics


@st.composite
def batches(draw):
    shape = draw(hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=5))
    log_probs = hnp.arrays(np.float64, shape, elements=st.floats(-30, 0))
    return draw(log_probs), draw(log_probs), draw(hnp.arrays(np.bool_, shape))


@given(batches(), st.floats(1.01, 10))
def test_weights(case, threshold):
    rollout, trainer, mask = case
    inputs = [torch.tensor(x) for x in case]
    truncated = importance_weights(*inputs, mode="truncate", threshold=threshold)
    kept = importance_weights(*inputs, mode="mask", threshold=threshold)
    assert importance_weights(*inputs, mode="off") is None
    for place in np.ndindex(mask.shape):
        ratio = math.exp(min(max(trainer[place] - rollout[place], -20), 20))
        first = min(ratio, threshold) if mask[place] else 0.0
        second = ratio if mask[place] and 1 / threshold <= ratio <= threshold else 0.0
        assert truncated[place].item() == pytest.approx(first, rel=1e-9)
        assert kept[place].item() == pytest.approx(second, rel=1e-9)


def test_mismatch_by_hand():
    rollout = torch.tensor([[math.log(0.5), math.log(0.1), math.nan]], dtype=torch.float64)
    trainer = torch.tensor([[math.log(0.25), math.log(0.4), math.inf]], dtype=torch.float64)
    got = mismatch_metrics(rollout, trainer, torch.tensor([[1, 1, 0]]), threshold=3.0)
    k3 = [math.exp(-d) + d - 1 for d in (math.log(2), -math.log(4))]
    assert got == {
        "training/rollout_probs_diff_mean": pytest.approx(0.275),
        "training/rollout_probs_diff_max": pytest.approx(0.3),
        "training/rollout_kl": pytest.approx(sum(k3) / 2),
        "training/rollout_is_weight_mean": pytest.approx(2.25),
        "training/rollout_is_weight_max": pytest.approx(4.0),
        "training/rollout_is_outside": pytest.approx(0.5),
    }


@pytest.mark.parametrize("shape", [(2, 3), (0, 3), (2, 0)])
def test_no_tokens(shape):
    zeros = torch.zeros(shape)
    assert set(mismatch_metrics(zeros, zeros, zeros).values()) == {0.0}
    assert torch.equal(importance_weights(zeros, zeros, zeros), zeros)


def test_errors():
    x = torch.zeros(1, 1)
    with pytest.raises(ValueError, match="threshold"):
        importance_weights(x, x, x, "truncate", 1.0)
    with pytest.raises(ValueError, match="off, truncate or mask"):
        importance_weights(x, x, x, "clip")  # type: ignore[arg-type]

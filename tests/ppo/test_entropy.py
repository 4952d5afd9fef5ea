import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from refblend.ppo.entropy import log_probs_and_entropy


def slow(logits, temperature):
    """Probabilities and entropy of one row, with the maximum subtracted."""
    scaled = [z / temperature for z in logits]
    top = max(scaled)
    weights = [math.exp(z - top) for z in scaled]
    p = [w / sum(weights) for w in weights]
    return p, -sum(q * math.log(q) for q in p if q > 0)


@given(
    hnp.arrays(np.float64, st.tuples(*[st.integers(1, 4)] * 3), elements=st.floats(-20, 20)),
    st.floats(0.5, 4),
    st.data(),
)
def test_against_the_definition(logits, temperature, data):
    labels = data.draw(
        hnp.arrays(np.int64, logits.shape[:2], elements=st.integers(0, logits.shape[2] - 1))
    )
    log_probs, entropy = log_probs_and_entropy(
        torch.tensor(logits), torch.tensor(labels), temperature=temperature
    )
    assert log_probs.shape == entropy.shape == logits.shape[:2]
    for place in np.ndindex(logits.shape[:2]):
        p, expected = slow(logits[place].tolist(), temperature)
        assert math.exp(log_probs[place].item()) == pytest.approx(p[labels[place]], abs=1e-9)
        assert entropy[place].item() == pytest.approx(expected, abs=1e-9)


def test_forbidden_tokens_and_extreme_logits():
    logits = torch.tensor([[0.0, -math.inf, 0.0], [1e4, 0.0, -1e4]], requires_grad=True)
    log_probs, entropy = log_probs_and_entropy(logits, torch.tensor([0, 0]))
    assert log_probs.tolist() == pytest.approx([-math.log(2), 0.0], abs=1e-6)
    assert entropy.tolist() == pytest.approx([math.log(2), 0.0], abs=1e-6)
    (log_probs.sum() + entropy.sum()).backward()
    assert logits.grad.isfinite().all()


def test_gradients_of_both_results():
    logits = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([0, 1, 2, 3, 0])

    def both(x):
        return log_probs_and_entropy(x, labels, temperature=0.7)

    assert torch.autograd.gradcheck(both, (logits,))


def test_bfloat16_logits_are_computed_in_float32():
    logits = torch.randn(3, 50).bfloat16()
    labels = torch.tensor([1, 2, 3])
    got = log_probs_and_entropy(logits, labels)
    want = log_probs_and_entropy(logits.double(), labels)
    assert got[0].dtype == torch.float32
    torch.testing.assert_close(got[0].double(), want[0], atol=1e-5, rtol=0)


def test_no_positions():
    log_probs, entropy = log_probs_and_entropy(torch.zeros(0, 7), torch.zeros(0, dtype=torch.long))
    assert log_probs.shape == entropy.shape == (0,)


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan])
def test_temperature_must_be_positive(temperature):
    with pytest.raises(ValueError, match="temperature"):
        log_probs_and_entropy(torch.zeros(1, 2), torch.zeros(1, dtype=torch.long), temperature)

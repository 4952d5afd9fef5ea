import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from refblend.ppo.kl import KLController, apply_kl_penalty, kl_penalty, mean_sequence_kl

LOGPROB = st.floats(-60, 0)


@given(LOGPROB, LOGPROB)
def test_estimators(logprob, ref):
    delta = logprob - ref
    inside = min(max(delta, -20.0), 20.0)
    expected = {
        ("kl", "k1"): delta,
        ("abs",): abs(delta),
        ("mse", "k2"): delta * delta / 2,
        ("low_var_kl", "k3"): min(math.exp(-inside) + inside - 1, 10.0),
    }
    pair = torch.tensor([logprob, ref], dtype=torch.float64)
    for names, value in expected.items():
        for name in names:
            got = kl_penalty(*pair, name)
            assert got.item() == pytest.approx(value, rel=1e-9, abs=1e-5)


def test_k3_is_never_negative_and_keeps_small_differences():
    delta = torch.logspace(-7, 1, 200)
    both = torch.cat([delta, -delta])
    k3 = kl_penalty(both, torch.zeros_like(both), "k3")
    assert (k3 >= 0).all()
    small = kl_penalty(torch.tensor([1e-3]), torch.zeros(1), "k3").item()
    assert small == pytest.approx(math.exp(-1e-3) + 1e-3 - 1, rel=2e-3)


@pytest.mark.parametrize("kind", ["k1", "k2", "k3"])
def test_gradients(kind):
    logprob = torch.tensor([-0.5, -2.0, -1.0], dtype=torch.float64, requires_grad=True)
    ref = torch.tensor([-1.0, -1.0, -1.5], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: kl_penalty(x, ref, kind), (logprob,))


def test_half_precision_and_unknown_names():
    half = torch.tensor([-1.0], dtype=torch.bfloat16)
    assert kl_penalty(half, half, "k3").dtype == torch.float32
    with pytest.raises(ValueError, match="low_var_kl or k3"):
        kl_penalty(half, half, "k4")


def test_penalty_comes_off_the_blended_reward():
    rewards = torch.tensor([[0.0, 1.0, math.nan]])
    kl = torch.tensor([[0.5, -0.5, math.nan]])
    mask = torch.tensor([[1, 1, 0]])
    assert apply_kl_penalty(rewards, kl, mask, 0.1).tolist() == [pytest.approx([-0.05, 1.05, 0])]


def test_mean_sequence_kl():
    kl = torch.tensor([[1.0, 3.0], [4.0, 99.0], [99.0, 99.0]])
    mask = torch.tensor([[1, 1], [1, 0], [0, 0]])
    assert mean_sequence_kl(kl, mask) == pytest.approx((2 + 4 + 0) / 3)
    assert mean_sequence_kl(torch.zeros(0, 2), torch.zeros(0, 2)) == 0.0


@given(st.floats(0, 2), st.integers(0, 10_000), st.floats(0.001, 1))
def test_adaptive_coefficient(current, n, target):
    controller = KLController(kl_coef=0.5, target_kl=target, horizon=10_000)
    controller.update(current, n_steps=n)
    error = current / target - 1
    error = -0.2 if error < -0.2 else 0.2 if error > 0.2 else error
    assert controller.value == pytest.approx(0.5 * (1 + error * n / 10_000))


def test_adaptive_extremes():
    controller = KLController(0.5, 0.1, 100)
    for bad in (math.nan, math.inf, -math.inf):
        controller.update(bad, 10)
    assert controller.value == 0.5
    controller.update(0.0, 10_000)
    assert controller.value == 0.0


def test_fixed_stays_and_obeys_the_configuration():
    controller = KLController(kl_coef=0.2)
    controller.update(current_kl=99.0, n_steps=10)
    controller.load_state_dict({"value": 0.9})
    assert controller.value == 0.2
    assert controller.state_dict() == {"value": 0.2}


def test_construction():
    with pytest.raises(ValueError, match="kl_coef"):
        KLController(-1.0)
    for target, horizon in ((0, 10), (0.1, 0), (math.nan, 1)):
        with pytest.raises(ValueError, match="must be positive"):
            KLController(0.1, target, horizon)

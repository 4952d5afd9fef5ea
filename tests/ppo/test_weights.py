import math
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from refblend.ppo import weights as w
from refblend.ppo.entropy_maps import RAMPS, schedule_weight
from refblend.ppo.weights import (
    STRATEGIES,
    Strategy,
    WeightParams,
    counterfactual_weights,
    register,
    weight_for,
)

ENTROPY = st.floats(0, 5)
WEIGHT = st.floats(0, 1)
TAU = st.floats(0.01, 3)
MAPS = [
    w.entropy_to_weight_linear,
    w.entropy_to_weight_cosine,
    w.entropy_to_weight_exp,
    w.entropy_to_weight_piecewise,
    w.entropy_to_weight_inverse,
]


@given(ENTROPY, WEIGHT, TAU)
def test_each_map_against_its_formula(entropy, top, tau):
    e = min(entropy / tau, 1.0)
    approx = pytest.approx
    assert w.entropy_to_weight_linear(entropy, top, tau) == approx(top * (1 - e), abs=1e-12)
    cosine = top * (1 + math.cos(math.pi * e)) / 2
    assert w.entropy_to_weight_cosine(entropy, top, tau) == approx(cosine, abs=1e-12)
    assert w.entropy_to_weight_exp(entropy, top, tau) == approx(top * math.exp(-3 * e))
    assert w.entropy_to_weight_inverse(entropy, top, tau) == approx(top * e, abs=1e-12)
    assert w.entropy_to_weight_constant(entropy, top) == top


@given(ENTROPY, WEIGHT, TAU, st.floats(0, 0.99))
def test_piecewise(entropy, top, tau, share):
    low = share * tau
    got = w.entropy_to_weight_piecewise(entropy, top, tau, low)
    if entropy <= low:
        assert got == top
    elif entropy >= tau:
        assert got == 0
    else:
        line = top + (0 - top) * (entropy - low) / (tau - low)
        assert got == pytest.approx(line, abs=1e-9)


@pytest.mark.parametrize(
    ("entropy", "linear", "cosine", "piecewise"),
    [(0.0, 0.3, 0.3, 0.3), (0.5, 0.15, 0.15, 0.3 * 5 / 7), (1.0, 0, 0, 0), (7.0, 0, 0, 0)],
)
def test_the_defaults_of_the_spec(entropy, linear, cosine, piecewise):
    assert w.entropy_to_weight_linear(entropy) == pytest.approx(linear, abs=1e-12)
    assert w.entropy_to_weight_cosine(entropy) == pytest.approx(cosine, abs=1e-12)
    assert w.entropy_to_weight_piecewise(entropy) == pytest.approx(piecewise, abs=1e-12)


@given(st.sampled_from(sorted(STRATEGIES)), ENTROPY, WEIGHT, TAU, st.integers(0, 200))
def test_every_strategy_stays_within_its_maximum(name, entropy, top, tau, step):
    params = WeightParams(
        max_weight=top,
        entropy_high_threshold=tau,
        entropy_low_threshold=tau / 2,
        max_weight_warmup_steps=10,
        replayed=(0.2,) * 200,
    )
    assert 0 <= weight_for(name, entropy, step, 100, params) <= top


@pytest.mark.parametrize("function", [*MAPS, w.entropy_to_weight_constant])
def test_extreme_entropies_and_tensors(function):
    assert function(-1e-6, 0.3) == function(0.0, 0.3)
    assert function(math.inf, 0.3) == function(1.0, 0.3)
    assert function(torch.tensor(0.5), 0.3) == function(0.5, 0.3)
    assert type(function(torch.tensor(0.5), 0.3)) is float
    with pytest.raises(ValueError, match="NaN"):
        function(math.nan, 0.3)
    for top in (-0.1, 1.5, math.nan):
        with pytest.raises(ValueError, match="max_weight"):
            function(0.5, top)


BAD_PARAMETERS = [
    *((f, (t,), "entropy_high_threshold") for f in MAPS for t in (0.0, -1.0, math.nan, math.inf)),
    *((w.entropy_to_weight_exp, (1.0, k), "exp_k") for k in (0.0, -1.0, math.nan)),
    *(
        (w.entropy_to_weight_piecewise, (1.0, low), "entropy_low_threshold")
        for low in (-0.1, 1.0, 2.0, math.nan)
    ),
]


@pytest.mark.parametrize(("function", "parameters", "says"), BAD_PARAMETERS)
def test_bad_parameters_are_refused(function, parameters, says):
    with pytest.raises(ValueError, match=says):
        function(0.5, 0.3, *parameters)


def slow_ramp(name, p):
    """Each shape from its own description."""
    if name == "linear":
        return p
    if name == "cosine":
        return (1 - math.cos(math.pi * p)) / 2
    if name == "exp":
        return (1 - math.exp(-5 * p)) / (1 - math.exp(-5))
    if name == "sigmoid":
        ends = [1 / (1 + math.exp(-10 * (x - 0.5))) for x in (0.0, p, 1.0)]
        return (ends[1] - ends[0]) / (ends[2] - ends[0])
    return max(k / 4 for k in range(5) if k / 4 <= p)


@pytest.mark.parametrize("name", sorted(RAMPS))
def test_ramps(name):
    values = [schedule_weight(s, 40, 0.3, name, 0.5) for s in range(41)]
    assert values[0] == pytest.approx(0, abs=1e-12)
    assert values == sorted(values)
    assert all(v == pytest.approx(0.3) for v in values[20:])
    for step in range(20):
        assert values[step] == pytest.approx(0.3 * slow_ramp(name, step / 20), abs=1e-12)
    assert schedule_weight(1, 40, 0.3, name, 0.0) == pytest.approx(0.3)
    assert schedule_weight(28, 100, 0.3, name, 0.28) == pytest.approx(0.3), "28 of 28.000…04"


def test_schedule_errors():
    for bad in ({"schedule": "cubic"}, {"warmup_share": 1.5}, {"step": -1}, {"total_steps": 0}):
        with pytest.raises(ValueError, match=r"must|unknown"):
            schedule_weight(**{"step": 1, "total_steps": 10, **bad})


def test_warm_up_of_the_maximum():
    params = WeightParams(max_weight=0.4, max_weight_warmup_steps=4)
    got = [weight_for("constant", 0.5, s, 100, params) for s in range(7)]
    assert got == pytest.approx([0, 0.1, 0.2, 0.3, 0.4, 0.4, 0.4])
    assert weight_for("constant", 0.5, 0, 100) == 0.3


def test_counterfactuals_are_what_each_strategy_would_give():
    params = WeightParams(
        max_weight=0.2, entropy_high_threshold=0.8, schedule="sigmoid", replayed=(0.1, 0.1, 0.15)
    )
    got = counterfactual_weights(0.4, 3, 20, params)
    assert set(got) == set(STRATEGIES)
    for name, value in got.items():
        assert type(value) is float
        assert value == weight_for(name, 0.4, 3, 20, params)
    unordered = WeightParams(entropy_high_threshold=0.2)
    left_out = set(STRATEGIES) - set(counterfactual_weights(0.4, 3, 20, unordered))
    assert left_out == {"piecewise", "replay"}


def test_unknown_strategy():
    with pytest.raises(ValueError, match="use one of linear"):
        weight_for("quadratic", 0.5, 1, 10)


def test_a_record_says_what_its_weight_depends_on():
    """Each field is moved alone: the weight changes exactly where the record names the field."""
    base = WeightParams(replayed=(0.25,) * 10)
    moved = {
        "max_weight": 0.2,
        "entropy_high_threshold": 0.9,
        "entropy_low_threshold": 0.2,
        "exp_k": 2.0,
        "schedule": "cosine",
        "schedule_warmup_share": 0.9,
        "replayed": (0.05,) * 10,
    }
    for strategy in STRATEGIES.values():
        at = (strategy.name, 0.5, 3, 10)
        changed = {
            name
            for name, value in moved.items()
            if weight_for(*at, replace(base, **{name: value})) != weight_for(*at, base)
        }
        assert changed == set(strategy.parameters)
        reads = weight_for(*at, base) != weight_for(strategy.name, 0.6, 3, 10, base)
        assert reads <= strategy.reads_entropy  # constant is a function too, a level one


@pytest.mark.parametrize(
    ("record", "says"),
    [
        (Strategy("linear", lambda h, p, at: 0.0, ()), "registered already"),
        (Strategy("toy", lambda h, p, at: 0.0, ("mass",)), "names mass"),
    ],
)
def test_a_record_that_does_not_fit_is_refused(record, says):
    before = dict(STRATEGIES)
    with pytest.raises(ValueError, match=says):
        register(record)
    assert before == STRATEGIES


def test_the_weights_need_no_torch():
    code = "import sys, refblend.ppo.weights; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@given(st.sampled_from(sorted(RAMPS)), st.integers(1, 60), st.floats(0, 1))
def test_decay_mirrors_the_schedule(ramp, step, share):
    params = WeightParams(max_weight=0.4, schedule=ramp, schedule_warmup_share=share)
    fallen = weight_for("decay", 0.5, step + 1, 60, params)
    assert fallen == pytest.approx(0.4 - weight_for("schedule", 0.5, step, 60, params))


def test_replay_gives_the_other_runs_weights_step_by_step():
    params = WeightParams(max_weight=0.25, replayed=(0.1, 0.3))
    assert [weight_for("replay", 9.0, step, 2, params) for step in range(3)] == [0, 0.1, 0.25]
    with pytest.raises(ValueError, match="2 steps, none for step 3"):
        weight_for("replay", 9.0, 3, 3, params)


def test_auto_is_a_multiple_of_the_entropy_before_training():
    names = {name: getattr(WeightParams(), name) for name in WeightParams.__annotations__}
    settings = SimpleNamespace(
        **names | {"entropy_high_threshold": "auto", "entropy_high_threshold_factor": 1.5}
    )
    assert WeightParams.of(settings, 0.4).entropy_high_threshold == pytest.approx(0.6)
    for useless in (None, 0.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="auto is a multiple"):
            WeightParams.of(settings, useless)

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from refblend.ppo.metrics import (
    correlation,
    expected_calibration_error,
    explained_variance,
    roc_auc,
)

SCORES = st.lists(st.tuples(st.integers(0, 10), st.booleans()), min_size=1, max_size=30)


@given(SCORES)
def test_auc_counts_the_pairs(pairs):
    scores = [s / 10 for s, _ in pairs]
    labels = [float(y) for _, y in pairs]
    right = [s for s, y in zip(scores, labels, strict=True) if y]
    wrong = [s for s, y in zip(scores, labels, strict=True) if not y]
    if not right or not wrong:
        assert roc_auc(scores, labels) is None
        return
    wins = sum(1.0 if r > w else 0.5 if r == w else 0.0 for r in right for w in wrong)
    assert roc_auc(scores, labels) == pytest.approx(wins / (len(right) * len(wrong)))


@given(SCORES, st.integers(1, 12))
def test_ece_by_bins(pairs, bins):
    scores = [s / 10 for s, _ in pairs]
    labels = [float(y) for _, y in pairs]
    expected = 0.0
    for k in range(bins):
        inside = [
            (s, y)
            for s, y in zip(scores, labels, strict=True)
            if math.floor(s * bins) == k or (k == bins - 1 and s == 1.0)
        ]
        if inside:
            confidence = sum(s for s, _ in inside) / len(inside)
            accuracy = sum(y for _, y in inside) / len(inside)
            expected += len(inside) / len(pairs) * abs(confidence - accuracy)
    assert expected_calibration_error(scores, labels, bins) == pytest.approx(expected, abs=1e-12)


def test_nan_scores_are_left_out():
    assert roc_auc([0.0, math.nan, 1.0], [0, 1, 1]) == 1.0
    assert roc_auc([math.nan, 0.5], [0, 1]) is None
    assert expected_calibration_error([math.nan], [1]) is None
    assert roc_auc([], []) is None


def test_scores_outside_the_unit_interval_go_to_the_nearest_bin():
    # bins of 1/2: {-1, 0.25} and {0.75, 3}
    got = expected_calibration_error([-1.0, 0.25, 0.75, 3.0], [0, 0, 1, 1], bins=2)
    assert got == pytest.approx((abs(-0.75) + abs(1.75)) / 4)


@given(st.lists(st.tuples(st.floats(-1e3, 1e3), st.integers(-50, 50)), min_size=2, max_size=20))
def test_correlation(pairs):
    x = [a for a, _ in pairs]
    y = [float(b) for _, b in pairs]
    got = correlation(torch.tensor(x, dtype=torch.float64), y)
    if max(x) - min(x) < 1e-6 or max(y) == min(y):
        assert got is None or -1 <= got <= 1
        return
    mx, my = sum(x) / len(x), sum(y) / len(y)
    top = sum((a - mx) * (b - my) for a, b in zip(x, y, strict=True))
    bottom = math.sqrt(sum((a - mx) ** 2 for a in x) * sum((b - my) ** 2 for b in y))
    assert got == pytest.approx(top / bottom, abs=1e-6)


@pytest.mark.parametrize("x", [[], [1.0], [2.0, 2.0, 2.0], [0.1] * 7, [math.nan, 1.0]])
def test_correlation_that_is_not_defined(x):
    assert correlation(x, list(range(len(x)))) is None


def test_correlation_of_extreme_values():
    assert correlation([1e200, 2e200, 3e200], [1, 2, 3]) == pytest.approx(1.0)
    assert correlation([1e-200, 2e-200, 3e-200], [3, 2, 1]) == pytest.approx(-1.0)


def test_explained_variance():
    returns, values = np.random.default_rng(0).normal(size=(2, 3, 4))
    mask = np.array([[1, 1, 1, 1], [1, 0, 0, 0], [0, 0, 0, 0]], dtype=bool)
    expected = 1 - (returns - values)[mask].var() / returns[mask].var()
    got = explained_variance(torch.tensor(values), torch.tensor(returns), torch.tensor(mask))
    assert got == pytest.approx(expected)
    r, m = torch.tensor(returns), torch.tensor(mask)
    assert explained_variance(r, r, m) == 1.0
    assert explained_variance(torch.zeros_like(r), r, m) == pytest.approx(0.0)
    assert explained_variance(r, torch.ones_like(r), m) is None
    assert explained_variance(r, r, torch.zeros_like(m)) is None
    assert explained_variance(r * math.inf, r, m) is None


def test_errors():
    with pytest.raises(ValueError, match="paired"):
        roc_auc([0.1], [0, 1])
    with pytest.raises(ValueError, match="bins"):
        expected_calibration_error([0.1], [1], 0)

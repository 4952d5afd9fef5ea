import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from refblend.study.stats.statistics import (
    area_under_curve,
    count_spikes,
    has_collapsed,
    largest_drawdown,
    rank_correlation,
    student_interval,
)

NUMBERS = st.lists(st.floats(-100, 100), min_size=1, max_size=40)


def test_spikes_are_the_planted_ones() -> None:
    series = np.random.default_rng(0).normal(0, 0.1, size=100)
    series[[10, 50]] = 5.0
    assert count_spikes(series, k=6.0) == 2
    series[70] = np.nan
    assert count_spikes(series, k=6.0) == 3
    assert count_spikes([math.nan, math.nan]) == 2
    assert count_spikes([]) == 0


@settings(deadline=None)
@given(NUMBERS)
def test_drawdown_against_all_pairs(values: list[float]) -> None:
    pairs = [values[i] - values[j] for i in range(len(values)) for j in range(i, len(values))]
    assert largest_drawdown(values) == max(pairs)


def test_area_under_a_straight_line_is_its_middle() -> None:
    assert area_under_curve([0, 5, 20], [0.0, 0.25, 1.0]) == pytest.approx(0.5)
    assert area_under_curve([3], [0.7]) == 0.7
    assert math.isnan(area_under_curve([], []))


def test_student_interval_agrees_with_scipys_t_test() -> None:
    values = np.random.default_rng(4).normal(1, 2, size=5)
    theirs = stats.ttest_1samp(values, 0).confidence_interval(0.9)
    ours = student_interval(values, confidence=0.9)
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high))
    assert (ours.estimate, ours.n) == (pytest.approx(values.mean()), 5)
    constant = student_interval([0.5, 0.5])
    assert (constant.low, constant.high) == (0.5, 0.5)
    assert math.isnan(student_interval([0.5]).low)
    assert student_interval([]).n == 0
    with pytest.raises(ValueError, match="NaN"):
        student_interval([0.5, math.nan])


def slow_collapse(entropy: list[float], share: float, patience: int) -> bool:
    start = next((value for value in entropy if not math.isnan(value)), None)
    if start is None:
        return False
    streak = 0
    for value in entropy:
        streak = streak + 1 if value <= share * start else 0
        if streak == patience:
            return True
    return False


@settings(deadline=None)
@given(
    st.lists(st.sampled_from([0.0, 0.2, 0.5, 1.0, 2.0, math.nan]), max_size=20),
    st.sampled_from([0.1, 0.5]),
    st.integers(1, 4),
)
def test_collapse_against_a_slow_loop(values: list[float], share: float, patience: int) -> None:
    assert has_collapsed(values, share, patience) == slow_collapse(values, share, patience)


@pytest.mark.parametrize("ties", [False, True])
def test_rank_correlation_is_scipys(ties: bool) -> None:
    x, y = np.random.default_rng(2).normal(size=(2, 12)).round(0 if ties else 9)
    assert rank_correlation(x, y) == pytest.approx(stats.spearmanr(x, y).statistic)
    assert math.isnan(rank_correlation(x, np.ones(12)))

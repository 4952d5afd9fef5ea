import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from refblend.study.stats.statistics import (
    area_under_curve,
    complete_seeds,
    count_spikes,
    entropy_collapse,
    iqm,
    largest_drawdown,
    paired_values,
    student_interval,
)

NUMBERS = st.lists(st.floats(-100, 100), min_size=1, max_size=40)


@settings(deadline=None)
@given(NUMBERS)
def test_iqm_is_the_mean_of_the_middle_half(values: list[float]) -> None:
    cut = len(values) // 4
    middle = sorted(values)[cut : len(values) - cut]
    assert iqm(np.array(values)) == pytest.approx(sum(middle) / len(middle), abs=1e-9)


def test_iqm_reduces_the_last_axis() -> None:
    rows = np.array([[0.0, 1.0, 2.0, 100.0], [1.0, 1.0, 1.0, 1.0]])
    assert iqm(rows).tolist() == [1.5, 1.0]


def test_one_value_has_no_interval() -> None:
    interval = student_interval([0.5])
    assert (interval.estimate, interval.n) == (0.5, 1)
    assert math.isnan(interval.low)
    assert str(interval) == "0.500 (n = 1)"
    assert str(student_interval([])) == "no data"


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match="NaN"):
        student_interval([0.5, math.nan])


def test_paired_difference_uses_common_seeds_only() -> None:
    treated = pd.Series([0.6, 0.7, 0.9], index=[1, 2, 3])
    baseline = pd.Series([0.5, 0.4, 0.1], index=[1, 2, 4])
    assert paired_values(treated, baseline) == pytest.approx([0.1, 0.3])


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


def test_complete_seeds_names_what_it_leaves_out() -> None:
    values = pd.DataFrame({"a": [1.0, 2.0], "b": [math.nan] * 2, "c": [math.nan, 3.0]})
    data, without = complete_seeds(values)
    assert (data.index.tolist(), list(data.columns), without) == ([1], ["a", "c"], ("b",))


def slow_collapse(entropy: list[float], share: float, patience: int) -> int | None:
    start = next((value for value in entropy if not math.isnan(value)), None)
    if start is None:
        return None
    streak = 0
    for step, value in enumerate(entropy):
        streak = streak + 1 if value <= share * start else 0
        if streak == patience:
            return step - patience + 1
    return None


@settings(deadline=None)
@given(
    st.lists(st.sampled_from([0.0, 0.2, 0.5, 1.0, 2.0, math.nan]), max_size=20),
    st.sampled_from([0.1, 0.5]),
    st.integers(1, 4),
)
def test_collapse_against_a_slow_loop(values: list[float], share: float, patience: int) -> None:
    assert entropy_collapse(values, share, patience) == slow_collapse(values, share, patience)


def test_collapse_is_lasting_and_not_a_dip() -> None:
    curve = [1.0, 0.05, 0.05, 0.5, 0.09, 0.08, 0.05, 0.6]
    assert entropy_collapse(curve, share=0.1, patience=3) == 4
    assert entropy_collapse(curve, share=0.1, patience=4) is None
    assert entropy_collapse([0.0, 0.0], patience=2) == 0
    for share, patience in ((0.0, 1), (1.0, 1), (0.5, 0)):
        with pytest.raises(ValueError, match="share"):
            entropy_collapse(curve, share, patience)

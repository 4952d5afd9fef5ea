"""Exact tests against scipy's permutation tests, and against counting by hand."""

import math
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from refblend.study.stats.exact import (
    equivalence_p,
    exact_p,
    exact_p_above,
    fewest_seeds,
    holm,
    least_p,
)

SMALL = st.lists(st.integers(-5, 5), min_size=2, max_size=6)


def welch_squared(x: list[int], y: list[int]) -> Fraction | float:
    """Welch's t, squared with its sign: a fraction, so that ties are exact."""
    means = [Fraction(sum(arm), len(arm)) for arm in (x, y)]
    errors = [
        sum((value - mean) ** 2 for value in arm) / (len(arm) - 1) / len(arm)
        for arm, mean in zip((x, y), means, strict=True)
    ]
    difference = means[0] - means[1]
    if not sum(errors):
        return math.copysign(math.inf, difference) if difference else 0.0
    return difference * abs(difference) / sum(errors)


@settings(deadline=None)
@given(SMALL)
def test_pairs_against_every_pattern_of_signs(differences: list[int]) -> None:
    sums = [
        sum(sign * value for sign, value in zip(signs, differences, strict=True))
        for signs in product([1, -1], repeat=len(differences))
    ]
    expected = sum(value >= sum(differences) for value in sums) / len(sums)
    zeros = [0.0] * len(differences)
    assert exact_p_above([value / 10 for value in differences], zeros, True) == expected


@settings(deadline=None, max_examples=40)
@given(SMALL, SMALL)
def test_independent_runs_against_every_split(x: list[int], y: list[int]) -> None:
    places = range(len(x) + len(y))
    seen, found_t = welch_squared(x, y), []
    for part in combinations(places, len(x)):
        treated = [(x + y)[i] for i in part]
        found_t.append(welch_squared(treated, [(x + y)[i] for i in places if i not in part]))
    expected = sum(value >= seen for value in found_t) / len(found_t)
    found = exact_p_above([value / 10 for value in x], [value / 10 for value in y], False)
    assert found == expected


def welch(a: np.ndarray, b: np.ndarray, axis: int = -1) -> np.ndarray:
    return stats.ttest_ind(a, b, axis=axis, equal_var=False).statistic


@pytest.mark.parametrize("paired", [True, False])
def test_two_sides_as_scipy_has_them(paired: bool) -> None:
    rng = np.random.default_rng(1)
    x, y = rng.normal(0.6, 1, 8), rng.normal(0, 1, 8)
    data, kind = ((x - y,), "samples") if paired else ((x, y), "independent")
    expected = stats.permutation_test(
        data, np.mean if paired else welch, permutation_type=kind, n_resamples=13_000
    )
    assert exact_p(x, y, paired) == pytest.approx(expected.pvalue, abs=1e-12)
    assert exact_p(x, y, paired) == exact_p(y, x, paired)


@pytest.mark.parametrize("paired", [True, False])
def test_many_runs_are_close_to_students_test_and_never_zero(paired: bool) -> None:
    rng = np.random.default_rng(2)
    x, y = rng.normal(0.4, 1, 30), rng.normal(0, 1, 30)
    student = stats.ttest_rel(x, y) if paired else stats.ttest_ind(x, y)
    assert exact_p(x, y, paired) == pytest.approx(student.pvalue, abs=0.015)
    assert exact_p(x + 100, y, paired) == least_p(30, 30, paired) == 2 / 100_000


def test_the_least_p_is_reached_by_arms_that_do_not_overlap() -> None:
    x, y = [3.0, 4.0, 5.0, 6.0], [0.0, 1.0, 1.5, 2.0]
    assert exact_p(x, y, True) == least_p(4, 4, True) == 2 / 16
    assert exact_p(x, y, False) == least_p(4, 4, False) == 2 / math.comb(8, 4)
    assert exact_p([1.0], [0.0], True) == least_p(1, 1, True) == 1.0


@pytest.mark.parametrize(
    ("alpha", "paired", "fewest"),
    [
        (0.05, True, 6),
        (0.05 / 3, True, 7),
        (2 / 2**16, True, 16),
        (2 / 2**16 - 1e-9, True, 17),
        (0.05, False, 4),
        (2 / math.comb(18, 9), False, 9),
        (1e-5, True, None),
        (1e-5, False, None),
    ],
)
def test_the_fewest_seeds_reach_the_level_and_one_fewer_does_not(alpha, paired, fewest) -> None:
    assert fewest_seeds(alpha, paired) == fewest

    def reached(seeds: int) -> bool:
        low = np.arange(seeds) / 100
        return exact_p(low + 1 + low, low, paired) <= alpha

    if fewest is not None and fewest <= 16:  # of more, rearrangements are drawn
        assert reached(fewest)
        assert not reached(fewest - 1)


@pytest.mark.parametrize(("paired", "fewest"), [(True, 5), (False, 3)])
def test_equivalence_takes_the_fewest_seeds_for_twice_the_level(paired: bool, fewest: int) -> None:
    """2⁻⁵ and 1/20 are the first that are at most 0.05."""
    assert fewest_seeds(2 * 0.05, paired) == fewest

    def shown(seeds: int) -> bool:
        same = np.arange(seeds) / 1000
        return equivalence_p(same, same, paired, 1.0) <= 0.05

    assert shown(fewest)
    assert not shown(fewest - 1)


@settings(deadline=None, max_examples=40)
@given(SMALL, st.floats(0.01, 3), st.booleans())
def test_equivalence_is_easier_with_a_wider_margin(values, margin, paired) -> None:
    zeros = [0.0] * len(values)
    narrow = equivalence_p(values, zeros, paired, margin)
    assert equivalence_p(values, zeros, paired, margin + 1) <= narrow
    assert narrow == equivalence_p(zeros, values, paired, margin)


def test_equal_runs_are_equivalent_as_surely_as_so_few_can_say() -> None:
    same = [0.4, 0.5, 0.45, 0.5]
    assert equivalence_p(same, same, True, 0.02) == 1 / 16
    assert exact_p(same, same, True) == exact_p([], [], True) == least_p(0, 0, True) == 1.0


def test_incomplete_runs_are_refused() -> None:
    with pytest.raises(ValueError, match="no pairs"):
        exact_p([1.0, 2.0], [1.0, 2.0, 3.0], True)
    with pytest.raises(ValueError, match="NaN"):
        exact_p([1.0, math.nan], [1.0, 2.0], False)


@settings(deadline=None)
@given(st.lists(st.floats(0, 1), max_size=6))
def test_holm_against_closed_testing(p_values: list[float]) -> None:
    """Holm is the closed test of Bonferroni: max over families I with i of |I|·min p."""
    m = len(p_values)
    families = [family for size in range(1, m + 1) for family in combinations(range(m), size)]
    expected = [
        max(min(1, len(f) * min(p_values[j] for j in f)) for f in families if i in f)
        for i in range(m)
    ]
    assert holm(p_values).tolist() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("bad", [[0.1, math.nan], [1.1], [-0.1]])
def test_what_is_no_p_value_is_refused(bad: list[float]) -> None:
    with pytest.raises(ValueError, match="0 … 1"):
        holm(bad)

import itertools
import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from refblend.study.stats.significance import holm, sign_flip_p, smallest_p

REFERENCE = json.loads(
    Path(__file__).with_name("data").joinpath("rliable_reference.json").read_text()
)
INTEGERS = st.lists(st.integers(-5, 5), min_size=2, max_size=7)


@settings(deadline=None)
@given(INTEGERS)
def test_sign_flips_against_all_patterns(differences: list[int]) -> None:
    seen = abs(sum(differences))
    patterns = itertools.product([1, -1], repeat=len(differences))
    sums = [abs(sum(s * d for s, d in zip(signs, differences, strict=True))) for signs in patterns]
    expected = Fraction(sum(value >= seen for value in sums), len(sums))
    p = sign_flip_p([d / 8 for d in differences], np.random.default_rng(0))
    assert p == pytest.approx(float(expected), abs=1e-12)
    assert p >= smallest_p(len(differences))


def test_sign_flips_of_tenths_are_not_misled_by_rounding() -> None:
    # In exact numbers 3 of the 4 pairs of patterns reach the sum of 0.3 + 0.1 − 0.2.
    exact = sign_flip_p([3.0, 1.0, -2.0], np.random.default_rng(0))
    assert sign_flip_p([0.3, 0.1, -0.2], np.random.default_rng(0)) == exact


@pytest.mark.parametrize("n", [1, 2, 3, 5, 6, 10])
def test_equal_signs_reach_the_smallest_p(n: int) -> None:
    assert sign_flip_p(np.linspace(1, 2, n), np.random.default_rng(0)) == smallest_p(n)
    assert smallest_p(n) == min(1, 2 / 2**n)


def test_nothing_shows_nothing() -> None:
    assert sign_flip_p([], np.random.default_rng(0)) == 1.0
    assert sign_flip_p([0.0, 0.0, 0.0], np.random.default_rng(0)) == 1.0
    assert smallest_p(0) == 1.0
    with pytest.raises(ValueError, match="NaN"):
        sign_flip_p([0.1, math.nan], np.random.default_rng(0))


def test_many_pairs_agree_with_students_t() -> None:
    differences = np.random.default_rng(5).normal(0.35, 1, 40)
    p = sign_flip_p(differences, np.random.default_rng(0))
    assert p == pytest.approx(stats.ttest_1samp(differences, 0).pvalue, abs=0.01)


@settings(deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_holm_against_closed_testing(p_values: list[float]) -> None:
    """Holm is the closed test of Bonferroni: max over families I with i of |I|·min p."""
    m = len(p_values)
    families = [
        family for size in range(1, m + 1) for family in itertools.combinations(range(m), size)
    ]
    expected = [
        max(min(1, len(f) * min(p_values[j] for j in f)) for f in families if i in f)
        for i in range(m)
    ]
    assert holm(p_values).tolist() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("case", REFERENCE["holm"])
def test_holm_agrees_with_statsmodels(case: dict[str, list[float]]) -> None:
    assert holm(case["p"]).tolist() == pytest.approx(case["adjusted"], abs=1e-12)


def test_holm_by_hand() -> None:
    # Sorted 0.005, 0.01, 0.03, 0.04 times 4, 3, 2, 1 = 0.02, 0.03, 0.06, 0.04 → never falling.
    assert holm([0.04, 0.005, 0.03, 0.01]).tolist() == pytest.approx([0.06, 0.02, 0.06, 0.03])
    assert holm([0.9, 0.8]).tolist() == [1.0, 1.0]
    assert holm([]).size == 0
    for bad in ([0.1, math.nan], [1.1], [-0.1]):
        with pytest.raises(ValueError, match="0 … 1"):
            holm(bad)

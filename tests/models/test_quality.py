import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refblend.models.quality import area_under_curve, expected_calibration_error, pass_at_k

SCORED = st.lists(st.tuples(st.sampled_from([0.0, 0.2, 0.5, 0.9, 1.0]), st.booleans()), max_size=20)


@given(SCORED)
def test_auc_is_the_share_of_ordered_pairs(scored: list[tuple[float, bool]]) -> None:
    positives = [s for s, right in scored if right]
    negatives = [s for s, right in scored if not right]
    result = area_under_curve([s for s, _ in scored], [right for _, right in scored])
    if not positives or not negatives:
        assert result is None
        return
    wins = sum((p > n) + 0.5 * (p == n) for p in positives for n in negatives)
    assert result == pytest.approx(wins / (len(positives) * len(negatives)))


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6), st.integers(1, 5))
def test_pass_at_k_is_the_share_of_subsets_with_a_hit(counts: list[int], k: int) -> None:
    shares = []
    for count in counts:
        samples = [True] * count + [False] * (5 - count)
        subsets = list(itertools.combinations(samples, k))
        shares.append(sum(any(subset) for subset in subsets) / len(subsets))
    assert pass_at_k(counts, 5, k) == pytest.approx(sum(shares) / len(shares))


def test_calibration_error() -> None:
    assert expected_calibration_error([1.0, 0.0], [True, False]) == 0.0
    assert expected_calibration_error([1.0, 1.0], [True, False]) == pytest.approx(0.5)
    assert expected_calibration_error([0.25] * 4, [True, False, False, False]) == 0.0
    assert expected_calibration_error([0.05, 0.95], [True, True]) == pytest.approx(0.5)

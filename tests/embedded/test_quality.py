import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refblend.embedded.actor_quality import pass_at_k


@settings(deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=6), st.integers(1, 5))
def test_pass_at_k_is_the_share_of_subsets_with_a_hit(counts: list[int], k: int) -> None:
    shares = []
    for count in counts:
        samples = [True] * count + [False] * (5 - count)
        subsets = list(itertools.combinations(samples, k))
        shares.append(sum(any(subset) for subset in subsets) / len(subsets))
    assert pass_at_k(counts, 5, k) == pytest.approx(sum(shares) / len(shares))

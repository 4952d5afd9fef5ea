"""How a batch is dealt out among engines."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from refblend.rollout.base import Work, split_rows


@st.composite
def works(draw: st.DrawFn) -> Work:
    """Up to 40 rows of up to 12 prompts; the prefix follows from the prompt."""
    keys = draw(st.lists(st.integers(0, 11), max_size=40))
    own = draw(st.lists(st.integers(1, 50), min_size=len(keys), max_size=len(keys)))
    return Work(keys, [float(7 * key) for key in keys], list(map(float, own)))


@given(works(), st.integers(1, 6))
def test_every_row_goes_to_one_engine_and_a_prompt_is_not_torn(work, count):
    shares = split_rows(work, count)
    assert len(shares) == count
    assert sorted(itertools.chain(*shares)) == list(range(len(work.keys)))
    assert all(share == sorted(share) for share in shares)
    of_key = [{work.keys[row] for row in share} for share in shares]
    assert sum(map(len, of_key)) == len(set(work.keys))
    assert split_rows(work, count) == shares


def load(work: Work, rows: list[int]) -> float:
    prefixes = {work.keys[row]: work.prefix[row] for row in rows}
    return sum(prefixes.values()) + sum(work.own[row] for row in rows)


@given(works(), st.integers(1, 3))
def test_the_longest_share_is_near_the_best_possible(work, count):
    """Graham's bound for LPT, 4/3 - 1/(3m), against every way to deal out up to 7 prompts."""
    keys = sorted(set(work.keys))[:7]
    rows = [row for row, key in enumerate(work.keys) if key in keys]
    work = Work(*([column[row] for row in rows] for column in (work.keys, work.prefix, work.own)))
    longest = max(load(work, share) for share in split_rows(work, count))
    best = min(
        max(
            load(work, [row for row, key in enumerate(work.keys) if deal[keys.index(key)] == e])
            for e in range(count)
        )
        for deal in itertools.product(range(count), repeat=len(keys))
    )
    assert longest <= best * (4 / 3 - 1 / (3 * count)) + 1e-9

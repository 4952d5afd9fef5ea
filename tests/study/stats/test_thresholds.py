import itertools
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refblend.study.stats.thresholds import choose_level, not_identifiable, sign_changes

LEVELS = [0.1, 0.2, 0.3, 0.4]
LOW = pd.Series(-2.0, index=range(1, 10))
"""A baseline that every level is better than."""
TABLE = st.lists(
    st.lists(st.floats(-1, 1), min_size=4, max_size=4), min_size=2, max_size=5
)  # seeds × levels


def rng() -> np.random.Generator:
    return np.random.default_rng(11)


def sweep(rows: list[list[float]]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=LEVELS[: len(rows[0])], index=range(1, len(rows) + 1))


def slow_knee(rows: list[list[float]]) -> tuple[float, list[float]]:
    """The knee, and how near each level's test was to its border."""
    n = len(rows)
    means = [math.fsum(row[i] for row in rows) / n for i in range(len(rows[0]))]
    best = means.index(max(means))
    margins = []
    for i in range(len(rows[0])):
        falls = [row[best] - row[i] for row in rows]
        middle = math.fsum(falls) / n
        error = math.sqrt(math.fsum((f - middle) ** 2 for f in falls) / (n - 1) / n)
        margins.append(error - middle)
    return LEVELS[next(i for i, m in enumerate(margins) if m >= 0)], margins


@settings(deadline=None)
@given(TABLE)
def test_knee_against_a_slow_loop(rows: list[list[float]]) -> None:
    expected, margins = slow_knee(rows)
    means = sorted(np.mean(rows, axis=0))
    clear = means[-1] - means[-2] > 1e-9 and sum(abs(m) < 1e-9 for m in margins) <= 1
    knee = choose_level("knee", sweep(rows), LOW, rng(), resamples=20)
    if clear:
        assert knee.level == expected
    assert knee.level is not None
    assert knee.best is not None
    assert knee.n == len(rows)
    assert len(knee.drawn) == 20
    assert 0 <= knee.stability <= 1


def test_knee_shares_by_all_resamples() -> None:
    rows = [[0.1, 0.5, 0.45], [0.2, 0.3, 0.5], [0.3, 0.35, 0.3]]
    chosen = [
        slow_knee([rows[i] for i in drawn])[0] for drawn in itertools.product(range(3), repeat=3)
    ]
    knee = choose_level("knee", sweep(rows), LOW, rng(), resamples=20000)
    assert knee.level == slow_knee(rows)[0]
    for level in LEVELS[:3]:
        share = (knee.drawn == level).mean()
        assert share == pytest.approx(chosen.count(level) / 27, abs=0.015)


@pytest.mark.parametrize("seeds", [2, 3, 5, 7])
def test_one_seed_that_differs_is_within_one_error(seeds: int) -> None:
    # Shortfalls 0, …, 0, a have mean a/n and standard error a/n, whatever the rounding.
    for a in (0.1, 0.3, 0.7):
        rows = [[0.5, 0.5]] * (seeds - 1) + [[0.5 - a, 0.5]]
        assert choose_level("knee", sweep(rows), LOW, rng()).level == 0.1


def slow_pivot(gains: list[float]) -> float | None:
    last: tuple[float, float] | None = None
    for level, gain in zip(LEVELS, gains, strict=False):
        if gain == 0:
            continue
        if last is not None and gain * last[1] < 0:
            return last[0]
        last = (level, math.copysign(1, gain))
    return None


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(-3, 3), min_size=4, max_size=4), min_size=1, max_size=5))
def test_pivot_against_a_slow_loop(rows: list[list[int]]) -> None:
    base = pd.Series([10.0 * i for i in range(len(rows))], index=range(1, len(rows) + 1))
    pivot = choose_level("pivot", sweep(rows).add(base, axis=0), base, rng(), resamples=20)
    assert pivot.level == slow_pivot([sum(row[i] for row in rows) for i in range(4)])
    assert pivot.n == len(rows)
    assert math.isnan(pivot.stability) == (len(rows) < 2)


def test_pivot_says_when_there_are_several_or_none() -> None:
    base = pd.Series(0.0, index=[1, 2])
    several = choose_level("pivot", sweep([[1, -1, 1, -1]] * 2), base, rng())
    assert (several.level, several.changes, several.stability) == (0.1, 3, 1.0)
    none = choose_level("pivot", sweep([[1, 2, 1, 2]] * 2), base, rng())
    assert (none.level, none.changes, none.stability) == (None, 0, 1.0)
    assert sign_changes(np.array([0.0, 2.0, 0.0, -1.0, 0.0, -2.0, 1.0])) == [1, 5]


def test_missing_runs_are_said() -> None:
    values = sweep(
        [[0.1, 0.5, math.nan, 0.4], [0.2, 0.5, math.nan, 0.4], [math.nan, 9, math.nan, 9]]
    )
    knee = choose_level("knee", values, LOW, rng())
    assert (knee.level, knee.n, knee.without_values) == (0.2, 2, (0.3,))
    base = pd.Series([0.3, 0.3], index=[1, 3])
    pivot = choose_level("pivot", values, base, rng())
    assert (pivot.level, pivot.n, pivot.without_values) == (0.1, 1, (0.3,))
    assert (pivot.drawn.size, math.isnan(pivot.stability)) == (0, True)
    empty = choose_level("pivot", values, pd.Series(dtype=float), rng())
    assert (empty.level, empty.n, empty.without_values) == (None, 0, (0.3,))


def test_there_is_no_knee_where_no_level_is_better_than_the_baseline() -> None:
    rows = [[0.1, 0.5, 0.45], [0.2, 0.3, 0.5], [0.3, 0.35, 0.3]]
    base = pd.Series(0.9, index=[1, 2, 3])
    knee = choose_level("knee", sweep(rows), base, rng())
    assert (knee.level, knee.best, knee.stability) == (None, 0.3, 1.0)
    assert not_identifiable(knee, LEVELS[:3]) == "no level is better than the baseline"
    near = choose_level("knee", sweep(rows), pd.Series([0.5, 0.5, 0.2], index=[1, 2, 3]), rng())
    assert near.level == slow_knee(rows)[0]
    assert 0 < np.isnan(near.drawn).mean() < 1, "resamples without the third seed gain nothing"


def test_one_seed_has_no_knee() -> None:
    knee = choose_level("knee", sweep([[0.1, 0.3, 0.2]]), LOW, rng())
    assert (knee.level, knee.best, knee.n) == (None, 0.2, 1)
    assert math.isnan(knee.stability)
    assert choose_level("knee", sweep([[math.nan, 0.3], [0.1, math.nan]]), LOW, rng()).n == 0

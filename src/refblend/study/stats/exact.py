"""Exact tests of a difference between two arms: every rearrangement of the runs is tried.

Paired runs are rearranged by flipping signs of their differences, independent ones by splitting all
runs anew into two arms. The statistic is Student's t, of independent arms Welch's: with arms of
different sizes and spreads the difference of means alone would miss its level even with many runs
(Chung and Romano, Ann. Statist. 41, 2013). For pairs it orders rearrangements as their sum does.
Where there are more than :data:`MOST` rearrangements, as many are drawn at random, always the same,
and the observed one is counted among them, so that p is never too small (Phipson and Smyth, Stat.
Appl. Genet. Mol. Biol. 9, 2010).

Holm adjusts many tests. With n pairs no p is below 2/2ⁿ: three seeds reach 0.25, five 0.0625, six
0.03125; where rearrangements are drawn, none is below 2/100,000.
"""

from functools import cache
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refblend.study.stats.statistics import numbers

MOST = 100_000
"""Rearrangements beyond which a sample of :data:`DRAWN` is taken."""

DRAWN = 99_999
TIES = 1e-12
"""Sums closer than this, relative to the data's size, are equal."""

TIES_OF_T = 1e-9
"""The same of Welch's t, which is a ratio of small differences."""


def exact_p_above(treated: ArrayLike, reference: ArrayLike, paired: bool) -> float:
    """One-sided p of mean(treated) > mean(reference); 1 where an arm has fewer than two runs.

    ``paired`` flips the signs of the n differences of pairs, in the same order; else all n + m runs
    are split anew. ValueError for NaN, or pairs that are incomplete.
    """
    x, y = numbers(treated), numbers(reference)
    if min(x.size, y.size) < 2:
        return 1.0
    if paired:
        if x.size != y.size:
            raise ValueError(f"{x.size} and {y.size} runs are no pairs")
        signs, whole = _signs(x.size)
        statistics, seen = signs @ (x - y), float((x - y).sum())
        tie = TIES * max(1.0, float(np.abs(x).sum() + np.abs(y).sum()))
    else:
        orders, whole = _splits(x.size, y.size)
        pooled = np.concatenate([x, y])
        statistics = welch_t(pooled[orders], x.size)
        seen = float(welch_t(pooled[None], x.size)[0])
        tie = TIES_OF_T * max(1.0, abs(seen)) if np.isfinite(seen) else 0.0
    beyond = int((statistics >= seen - tie).sum())
    return beyond / len(statistics) if whole else (beyond + 1) / (len(statistics) + 1)


def welch_t(runs: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    """Welch's t of mean(treated) − mean(others) for many orders of the same runs, (orders, runs).

    The first ``n`` of each are treated. ± infinity for different arms that do not vary, 0 for equal
    ones, which SciPy's ``ttest_ind`` cannot tell from rounding.
    """
    x, y = runs[:, :n], runs[:, n:]
    difference = x.mean(axis=1) - y.mean(axis=1)
    error = np.sqrt(sum(arm.var(axis=1, ddof=1) / arm.shape[1] for arm in (x, y)))
    tiny = TIES * max(float(np.abs(runs[0]).max()), 1e-300)
    for each in (difference, error):
        each[np.abs(each) <= tiny] = 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.nan_to_num(difference / error, posinf=np.inf, neginf=-np.inf)


def exact_p(treated: ArrayLike, reference: ArrayLike, paired: bool) -> float:
    """Two-sided p of a difference: twice the smaller one-sided p, at most 1."""
    above = exact_p_above(treated, reference, paired)
    return min(1.0, 2 * min(above, exact_p_above(reference, treated, paired)))


def equivalence_p(treated: ArrayLike, reference: ArrayLike, paired: bool, margin: float) -> float:
    """p of two one-sided exact tests: does the difference lie within ± ``margin``?

    The larger of the p values of "above −margin" and "below +margin" (Schuirmann, J. Pharmacokinet.
    Biopharm. 15, 1987), each the exact test of runs shifted by the margin.
    """
    x, y = numbers(treated), numbers(reference)
    return max(exact_p_above(x + margin, y, paired), exact_p_above(y + margin, x, paired))


def least_p(n: int, m: int, paired: bool) -> float:
    """The smallest two-sided p that such an exact test can give."""
    if min(n, m) < 2:
        return 1.0
    ways = 2**n if paired else comb(n + m, n)
    return min(1.0, 2 / (ways if ways <= MOST else DRAWN + 1))


def fewest_seeds(alpha: float, paired: bool) -> int | None:
    """The fewest seeds per arm with which the two-sided p can be at most ``alpha``; null where no
    number is enough.

    The smallest p of equivalence is half of :func:`least_p`, so it can be at most ``alpha`` with
    the fewest seeds for 2 ``alpha``.
    """
    # From here on all rearrangements are too many to be tried, and more seeds change nothing.
    most = MOST.bit_length()
    return next((n for n in range(2, most + 1) if least_p(n, n, paired) <= alpha), None)


@cache
def _signs(n: int) -> tuple[NDArray[np.float64], bool]:
    """Sign patterns (rows of n), and whether they are all."""
    if 2**n <= MOST:
        bits = (np.arange(2**n)[:, None] >> np.arange(n)) & 1
        return (1.0 - 2.0 * bits).astype(np.float64), True
    drawn = np.random.default_rng(0).integers(2, size=(DRAWN, n))
    return (1.0 - 2.0 * drawn).astype(np.float64), False


@cache
def _splits(n: int, m: int) -> tuple[NDArray[np.int64], bool]:
    """Orders of n + m runs (rows), of which the first n are treated, and whether they are all."""
    if comb(n + m, n) <= MOST:
        treated, others = (np.array(list(combinations(range(n + m), k))) for k in (n, m))
        return np.hstack([treated, others[::-1]]), True  # the last one is what the first leaves
    placed = np.tile(np.arange(n + m), (DRAWN, 1))
    return np.random.default_rng(0).permuted(placed, axis=1), False


def holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """Holm's step-down adjustment (Scand. J. Statist. 6, 1979), in the order given.

    The i-th smallest of m values becomes max over j ≤ i of (m − j + 1)·p_(j), at most 1. SciPy has
    Benjamini–Hochberg only, which bounds another error. ValueError outside 0 … 1 and for NaN.
    """
    p = np.asarray(p_values, dtype=np.float64)
    if not ((p >= 0) & (p <= 1)).all():
        raise ValueError("p values must lie in 0 … 1")
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.maximum.accumulate(np.arange(p.size, 0, -1) * p[order])
    return np.minimum(adjusted, 1.0)

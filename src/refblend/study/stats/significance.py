"""Tests for few paired seeds: exact sign flips, and Holm's adjustment for many of them.

With n pairs no sign-flip p is below 2/2ⁿ: three seeds reach 0.25, five 0.0625, six 0.03125.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from refblend.study.stats.statistics import numbers

MAX_EXACT_FLIPS = 2**14
"""Up to 14 pairs all sign flips are tried."""


def smallest_p(n: int) -> float:
    """The smallest two-sided p that a sign-flip test of n pairs can give: 2/2ⁿ, at most 1."""
    return min(1.0, 2.0 ** (1 - n))


def sign_flip_p(differences: ArrayLike, rng: np.random.Generator) -> float:
    """Two-sided p of a sign-flip test: are paired differences symmetric about 0?

    Exact up to 14 pairs: the share of all 2ⁿ sign patterns whose mean is at least as far from 0 as
    the one seen. Above, 2¹⁴ random patterns. Fewer than two pairs show nothing: p = 1.
    """
    data = numbers(differences)
    if data.size < 2:
        return 1.0
    result = stats.permutation_test(
        (data,),
        np.mean,
        permutation_type="samples",
        vectorized=True,
        n_resamples=MAX_EXACT_FLIPS,
        rng=rng,
    )
    return float(result.pvalue)


def holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """Holm's step-down adjustment (Scand. J. Statist. 6, 1979), in the order given.

    The i-th smallest of m values becomes max over j ≤ i of (m − j + 1)·p_(j), at most 1. SciPy has
    Benjamini–Hochberg only, which bounds another error.

    Raises:
        ValueError: a value lies outside 0 … 1 or is NaN.
    """
    p = np.asarray(p_values, dtype=np.float64)
    if not ((p >= 0) & (p <= 1)).all():
        raise ValueError("p values must lie in 0 … 1")
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.maximum.accumulate(np.arange(p.size, 0, -1) * p[order])
    return np.minimum(adjusted, 1.0)

"""Statistics over seeds: pure functions of numbers, all randomness from a given Generator.

With few seeds an interval says little; every result carries its n, and one seed gives no interval
instead of a narrow one. IQM and stratified bootstrap follow Agarwal et al., arXiv 2108.13264.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import stats

Statistic = Callable[[NDArray[np.float64]], NDArray[np.float64]]
"""Reduces the last axis."""

MAD_TO_SIGMA = 1.4826
"""MAD × this = standard deviation of normal data."""


@dataclass(frozen=True)
class Interval:
    """An estimate with its bootstrap interval; low and high are NaN for fewer than two values."""

    estimate: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        if self.n == 0:
            return "no data"
        if np.isnan(self.low):
            return f"{self.estimate:.3f} (n = {self.n})"
        return f"{self.estimate:.3f} [{self.low:.3f}, {self.high:.3f}] (n = {self.n})"


def mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Arithmetic mean over the last axis."""
    return np.asarray(values, dtype=np.float64).mean(axis=-1)


def iqm(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Interquartile mean over the last axis: ⌊n/4⌋ values are cut at each end."""
    return np.asarray(stats.trim_mean(values, 0.25, axis=-1))


def bootstrap_interval(
    values: ArrayLike,
    rng: np.random.Generator,
    statistic: Statistic = mean,
    strata: ArrayLike | None = None,
    confidence: float = 0.95,
    resamples: int = 5000,
) -> Interval:
    """Percentile bootstrap; with ``strata`` each stratum keeps its size in every resample.

    Args:
        values: (n,) one number a run; NaN is refused.
        rng: source of the resamples; the same state gives the same interval.
        statistic: reduces the last axis of (resamples, n).
        strata: (n,) label of each value, e.g. the task; null: one stratum.

    Raises:
        ValueError: a value is NaN, or the lengths differ.
    """
    data = np.asarray(values, dtype=np.float64)
    if np.isnan(data).any():
        raise ValueError("values must not be NaN: leave failed runs out and count them")
    if data.size == 0:
        return Interval(np.nan, np.nan, np.nan, 0)
    estimate = float(statistic(data))
    if data.size < 2:
        return Interval(estimate, np.nan, np.nan, data.size)
    labels = np.zeros(data.size) if strata is None else np.asarray(strata)
    if labels.shape != data.shape:
        raise ValueError("strata must have one label a value")
    drawn = np.empty((resamples, data.size), dtype=np.intp)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        drawn[:, members] = members[rng.integers(members.size, size=(resamples, members.size))]
    replicates = statistic(data[drawn])
    tail = (1 - confidence) / 2
    low, high = np.quantile(replicates, [tail, 1 - tail])
    return Interval(estimate, float(low), float(high), data.size)


def paired_difference(
    treated: pd.Series, baseline: pd.Series, rng: np.random.Generator, resamples: int = 5000
) -> Interval:
    """Mean of treated − baseline over the seeds (the index) that both have."""
    both = pd.concat([treated, baseline], axis=1, join="inner").dropna()
    return bootstrap_interval(
        (both.iloc[:, 0] - both.iloc[:, 1]).to_numpy(), rng, resamples=resamples
    )


def count_spikes(series: ArrayLike, k: float = 5.0) -> int:
    """Steps whose value leaves median ± k·1.4826·MAD; NaN steps count, they are worse."""
    data = np.asarray(series, dtype=np.float64)
    finite = data[np.isfinite(data)]
    if finite.size == 0:
        return int(data.size)
    centre = np.median(finite)
    spread = MAD_TO_SIGMA * np.median(np.abs(finite - centre))
    return int((np.abs(finite - centre) > k * spread).sum() + (data.size - finite.size))


def largest_drawdown(series: ArrayLike) -> float:
    """Largest fall below the best value so far (0 for a curve that never falls)."""
    data = np.asarray(series, dtype=np.float64)
    if data.size == 0:
        return float("nan")
    return float((np.maximum.accumulate(data) - data).max())


def area_under_curve(steps: ArrayLike, values: ArrayLike) -> float:
    """Mean height of a curve over its steps (trapezoids); the value itself for one point."""
    x, y = np.asarray(steps, dtype=np.float64), np.asarray(values, dtype=np.float64)
    if x.size < 2:
        return float(y[0]) if y.size else float("nan")
    return float(np.trapezoid(y, x) / (x[-1] - x[0]))

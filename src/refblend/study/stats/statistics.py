"""Statistics over seeds: pure functions of numbers, all randomness from a given Generator.

With few seeds an interval says little; every result carries its n, and one seed gives no interval
instead of a narrow one. Formulas and rules in words: docs/explanation/statistics.md.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import stats

CONFIDENCE = 0.95
MAD_TO_SIGMA = 1.4826
"""MAD × this = standard deviation of normal data."""


class Interval(NamedTuple):
    """An estimate with its interval; low and high are NaN for fewer than two values."""

    estimate: float
    low: float
    high: float
    n: int


def complete_seeds(values: pd.DataFrame) -> tuple[pd.DataFrame, tuple]:
    """The seeds that every arm has, so that arms are compared on the same draws.

    Of a frame with a row per seed and a column per arm (NaN: the run is missing): the rows without
    NaN after columns without any value are taken out, and those columns. Where no column has a
    value there are no rows either.
    """
    without = tuple(values.columns[values.isna().all()])
    complete = values.drop(columns=list(without)).dropna()
    return complete if len(complete.columns) else complete.iloc[:0], without


def numbers(values: ArrayLike) -> NDArray[np.float64]:
    """One number per run; ValueError for NaN."""
    data = np.asarray(values, dtype=np.float64)
    if np.isnan(data).any():
        raise ValueError("values must not be NaN: leave failed runs out and count them")
    return data


def student_interval(values: ArrayLike, confidence: float = CONFIDENCE) -> Interval:
    """Student's t interval of the mean: exact for normal data, also with three seeds."""
    data = numbers(values)
    estimate = float(data.mean()) if data.size else np.nan
    if data.size < 2:
        return Interval(estimate, np.nan, np.nan, data.size)
    half = float(stats.sem(data) * stats.t.ppf((1 + confidence) / 2, data.size - 1))
    return Interval(estimate, estimate - half, estimate + half, data.size)


def rank_correlation(x: ArrayLike, y: ArrayLike) -> float:
    """Spearman's; NaN where one of the two is constant or has a single value."""
    if np.size(x) < 2 or not np.ptp(x) or not np.ptp(y):
        return float("nan")
    return float(np.corrcoef(stats.rankdata(x), stats.rankdata(y))[0, 1])


def count_spikes(series: ArrayLike, k: float = 5.0) -> int:
    """Steps whose value leaves median ± k·1.4826·MAD; NaN steps count, they are worse."""
    data = np.asarray(series, dtype=np.float64)
    finite = data[np.isfinite(data)]
    if finite.size == 0:
        return int(data.size)
    centre = np.median(finite)
    spread = MAD_TO_SIGMA * np.median(np.abs(finite - centre))
    return int((np.abs(finite - centre) > k * spread).sum() + (data.size - finite.size))


def has_collapsed(entropy: ArrayLike, share: float = 0.1, patience: int = 5) -> bool:
    """Whether ``patience`` consecutive steps have at most ``share`` of the first finite entropy.

    A NaN step breaks the sequence: it is counted as a spike, not here.
    """
    data = np.asarray(entropy, dtype=np.float64)
    finite = data[np.isfinite(data)]
    if finite.size == 0 or data.size < patience:
        return False
    low = data <= share * finite[0]
    return bool(np.lib.stride_tricks.sliding_window_view(low, patience).all(axis=-1).any())


def largest_drawdown(series: ArrayLike) -> float:
    """Largest fall below the best value so far (0 for a curve that never falls)."""
    data = np.asarray(series, dtype=np.float64)
    return float((np.maximum.accumulate(data) - data).max())


def area_under_curve(steps: ArrayLike, values: ArrayLike) -> float:
    """Mean height of a curve over its steps (trapezoids); the value itself for one point."""
    x, y = np.asarray(steps, dtype=np.float64), np.asarray(values, dtype=np.float64)
    if x.size < 2:
        return float(y[0]) if y.size else float("nan")
    return float(np.trapezoid(y, x) / (x[-1] - x[0]))

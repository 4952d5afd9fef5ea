"""The best arm on a metric, and what is known against the others.

Runs come as a frame with one row per seed and one column per arm (NaN: the run is missing), because
arms share seeds, data order and initial weights and are compared seed by seed.
"""

import math
from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from refblend.study.stats.statistics import (
    Interval,
    complete_seeds,
    percentile_interval,
    resample_rows,
    student_interval,
)

ROUNDING = 1e-9
"""Interval widths up to this are rounding of equal differences."""
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Best:
    """The best arm on one metric and what is known against the others."""

    arm: Hashable | None
    """Null where there is no seed that all arms have."""
    n: int
    """Seeds that all arms have; only these are used."""
    gaps: dict[Hashable, Interval]
    """Best − other arm, for every other arm with values, in the metric's unit: bootstrap."""
    simultaneous: dict[Hashable, Interval]
    """The same by Student's t, widened so that all pairs of arms hold together (Bonferroni)."""
    share: float
    """Share of resamples in which it is the best; NaN for fewer than two seeds."""
    without_values: tuple[Hashable, ...]
    """Arms without any run: they could not be considered."""

    @property
    def not_distinguishable(self) -> tuple[Hashable, ...]:
        """Arms with one of the two intervals to the best containing 0, without bounds or width.

        The bootstrap alone would separate equal arms far too often: four equal arms and three
        seeds, in 64 of 100 studies (docs/explanation/statistics.md).
        """
        tied = []
        for arm, gap in self.gaps.items():
            wide = self.simultaneous[arm]
            differs = wide.excludes_zero and wide.high - wide.low > ROUNDING
            if not (differs and gap.excludes_zero):
                tied.append(arm)
        return tuple(tied)


def best_configuration(
    values: pd.DataFrame,
    rng: np.random.Generator,
    higher_is_better: bool = True,
    resamples: int = 5000,
) -> Best:
    """The arm with the best mean, with paired bootstrap intervals to all others.

    The first of equal arms wins. The mean of the best of several arms is biased upwards by the
    selection, so confirm it on fresh seeds. Seeds are drawn for all arms together. Each percentile
    interval has 95 %, and all Student intervals together; these are adjusted for all k(k − 1)/2
    pairs, because the best is chosen by looking at the data.
    """
    data, without = complete_seeds(values)
    arms, n = list(data.columns), len(data)
    if n == 0:
        return Best(None, 0, {}, {}, np.nan, without)
    table = data.to_numpy(dtype=np.float64)
    sign = 1.0 if higher_is_better else -1.0
    best = int(np.argmax(sign * table.mean(axis=0)))
    gaps = table[:, [best]] - table
    drawn = resample_rows(n, resamples, rng)
    replicates = gaps[drawn].mean(axis=1)
    share = float((np.argmin(sign * replicates, axis=-1) == best).mean()) if n > 1 else np.nan

    def interval(column: int) -> Interval:
        estimate = float(gaps[:, column].mean())
        if n < 2:
            return Interval(estimate, np.nan, np.nan, n)
        return percentile_interval(estimate, replicates[:, column], n)

    each = 1 - (1 - CONFIDENCE) / max(1, math.comb(len(arms), 2))
    others = [i for i in range(len(arms)) if i != best]
    return Best(
        arm=arms[best],
        n=n,
        gaps={arms[i]: interval(i) for i in others},
        simultaneous={arms[i]: student_interval(gaps[:, i], each) for i in others},
        share=share,
        without_values=without,
    )

"""Comparison of arms: probability of improvement, tests against a baseline, the best arm.

Runs come as a frame with one row per seed and one column per arm (NaN: the run is missing), because
arms share seeds, data order and initial weights and are compared seed by seed.

Every comparison carries the smallest p that its number of seeds can give, so that a report can
say which verdicts were out of reach before any run.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from refblend.study.stats.exact import equivalence_p, exact_p, holm, least_p
from refblend.study.stats.statistics import (
    Interval,
    bootstrap_interval,
    complete_seeds,
    numbers,
    paired_values,
    percentile_interval,
    resample_rows,
    student_interval,
)

ROUNDING = 1e-9
"""Interval widths up to this are rounding of equal differences."""


def _has_width(interval: Interval) -> bool:
    """Whether an interval says anything: it has bounds, and its values differ."""
    return interval.high - interval.low > ROUNDING


def _says_not_zero(interval: Interval) -> bool:
    return _has_width(interval) and interval.excludes_zero


def probability_of_improvement(
    treated: ArrayLike, baseline: ArrayLike, rng: np.random.Generator, resamples: int = 5000
) -> Interval:
    """P(treated > baseline) + ½ P(equal) over all pairs of runs, with its 95 % interval.

    Agarwal et al. 2021, arXiv 2108.13264, section 4.3. The two sides, (n,) and (m,), are resampled
    independently, as in their library: pairing by seed is not used. Its n is the smaller side's;
    bounds are NaN where a side has fewer than two runs.

    Raises:
        ValueError: a value is NaN.
    """
    x, y = numbers(treated), numbers(baseline)
    n = min(x.size, y.size)
    if n == 0:
        return Interval(np.nan, np.nan, np.nan, 0)
    wins = (x[:, None] > y) + 0.5 * (x[:, None] == y)
    drawn_x, drawn_y = (
        rng.multinomial(side.size, np.full(side.size, 1 / side.size), size=resamples)
        for side in (x, y)
    )
    estimate = float(wins.mean())
    if n < 2:
        return Interval(estimate, np.nan, np.nan, n)
    replicates = ((drawn_x @ wins) * drawn_y).sum(axis=-1) / wins.size
    return percentile_interval(estimate, replicates, n)


@dataclass(frozen=True)
class Comparison:
    """An arm against the baseline, seed by seed; ``difference`` is arm − baseline."""

    arm: str
    baseline: str
    difference: Interval
    """Percentile bootstrap; too narrow with few seeds (docs/explanation/statistics.md)."""
    student: Interval
    """Student's t of the same differences, for few seeds."""
    simultaneous: Interval
    """The same, widened so that the whole family holds together (Bonferroni)."""
    p: float
    p_holm: float
    smallest_p: float
    """Smallest p that the test can give with this number of seeds (:func:`.exact.least_p`)."""
    smallest_p_holm: float
    """Smallest adjusted p that this family of comparisons can give."""
    p_equivalence_holm: float
    """Adjusted p of two one-sided exact tests that the difference lies within ± the margin."""
    alpha: float
    higher_is_better: bool | None = True
    """Null: neither direction is better in itself."""

    @property
    def verdict(self) -> str:
        """ "equivalent", "better", "worse" or "undecided", as :mod:`.verdicts` has it; "higher" or
        "lower" where no direction is better."""
        if self.p_equivalence_holm <= self.alpha:
            return "equivalent"
        if self.p_holm > self.alpha:
            return "undecided"
        above = self.difference.estimate > 0
        if self.higher_is_better is None:
            return "higher" if above else "lower"
        return "better" if above == self.higher_is_better else "worse"

    @property
    def interval_excludes_zero(self) -> bool | None:
        """Whether 0 lies outside the simultaneous Student interval.

        Null where there is none: fewer than two seeds, or differences that are all equal, whose
        interval of width 0 would claim a certainty that so few seeds cannot give.
        """
        return self.simultaneous.excludes_zero if _has_width(self.simultaneous) else None


def compare_pairs(
    values: pd.DataFrame,
    pairs: Sequence[tuple[str, str]],
    rng: np.random.Generator,
    alpha: float = 0.05,
    margin: float = 0.0,
    higher_is_better: bool | None = True,
) -> list[Comparison]:
    """Arms against their baselines, (arm, baseline), over the seeds that both of a pair have.

    All pairs are one family: their p values are adjusted together by Holm, their simultaneous
    intervals by Bonferroni. A pair without seeds in common stays in it, with n = 0 and p = 1. All
    are resampled with the same stream, so that an arm's interval does not depend on which others
    there are. ``alpha`` is the verdicts' level; intervals have confidence 1 − alpha. With a
    ``margin`` of 0 nothing is equivalent.

    Raises:
        ValueError: an arm is not a column, or a seed or an arm is duplicated.
    """
    complete_seeds(values)
    absent = sorted({arm for pair in pairs for arm in pair} - set(values.columns))
    if absent:
        raise ValueError(f"{absent} are not columns of the values")
    stream = int(rng.integers(2**63))
    differences = [paired_values(values[arm], values[baseline]) for arm, baseline in pairs]
    p = [exact_p(pair, np.zeros(pair.size), paired=True) for pair in differences]
    bounds = [least_p(pair.size, pair.size, paired=True) for pair in differences]
    adjusted, adjusted_bounds = holm(p), holm(bounds)
    equal = holm(
        [
            equivalence_p(pair, np.zeros(pair.size), True, margin) if margin else 1.0
            for pair in differences
        ]
    )
    return [
        Comparison(
            arm=arm,
            baseline=baseline,
            difference=bootstrap_interval(
                pair, np.random.default_rng(stream), confidence=1 - alpha
            ),
            student=student_interval(pair, confidence=1 - alpha),
            simultaneous=student_interval(pair, confidence=1 - alpha / len(pairs)),
            p=p[i],
            p_holm=float(adjusted[i]),
            smallest_p=bounds[i],
            smallest_p_holm=float(adjusted_bounds[i]),
            p_equivalence_holm=float(equal[i]),
            alpha=alpha,
            higher_is_better=higher_is_better,
        )
        for i, ((arm, baseline), pair) in enumerate(zip(pairs, differences, strict=True))
    ]


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
        return tuple(
            arm
            for arm, gap in self.gaps.items()
            if not (gap.excludes_zero and _says_not_zero(self.simultaneous[arm]))
        )


def best_configuration(
    values: pd.DataFrame,
    rng: np.random.Generator,
    higher_is_better: bool = True,
    confidence: float = 0.95,
    resamples: int = 5000,
) -> Best:
    """The arm with the best mean, with paired bootstrap intervals to all others.

    The first of equal arms wins. The mean of the best of several arms is biased upwards by the
    selection, so confirm it on fresh seeds. Seeds are drawn for all arms together. ``confidence``
    is that of each percentile interval, and of all Student intervals together; these are adjusted
    for all k(k − 1)/2 pairs, because the best is chosen by looking at the data.
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
        return percentile_interval(estimate, replicates[:, column], n, confidence)

    each = 1 - (1 - confidence) / max(1, math.comb(len(arms), 2))
    others = [i for i in range(len(arms)) if i != best]
    return Best(
        arm=arms[best],
        n=n,
        gaps={arms[i]: interval(i) for i in others},
        simultaneous={arms[i]: student_interval(gaps[:, i], each) for i in others},
        share=share,
        without_values=without,
    )

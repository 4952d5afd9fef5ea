"""Levels found by a fixed rule, not by eye: the knee of a sweep and the pivot of a threshold.

Both take runs as a frame with one row per seed and one column per level (increasing numbers), use
the seeds that every level has, and say how stable the choice is: the share of paired bootstrap
resamples (a seed is drawn with all its levels) in which the same rule chooses the same level.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from refblend.study.stats.statistics import CONFIDENCE, complete_seeds

MIN_LEVELS = 3
"""Fewest levels for which a knee or a pivot is sought."""

SLACK = 1 + 1e-9
"""If only one seed differs, shortfall and its error are equal: rounding must not decide."""


@dataclass(frozen=True)
class Choice:
    """A chosen level; null where the rule chooses none."""

    level: float | None
    n: int
    """Seeds that every level has; only these are used."""
    drawn: NDArray[np.float64]
    """What the rule chooses of each resample, NaN for none; empty for fewer than two seeds."""
    without_values: tuple[float, ...]
    """Levels without any run: they could not be considered."""
    best: float | None
    """Of a knee: the level with the best mean."""
    changes: int | None
    """Of a pivot: changes of sign over all levels; more than one: there is no single pivot."""

    @property
    def stability(self) -> float:
        """Share of resamples that choose the same level; NaN for fewer than two seeds."""
        same = np.isnan(self.drawn) if self.level is None else self.drawn == self.level
        return float(same.mean()) if same.size else float("nan")

    def interval(self) -> tuple[float, float] | None:
        """The levels between which the choice lies in the central 95 % of the resamples.

        Null for fewer than two seeds, and where more than 5 % of the resamples choose no level.
        """
        chosen = np.sort(self.drawn[~np.isnan(self.drawn)])
        if not chosen.size or chosen.size < CONFIDENCE * self.drawn.size:
            return None
        beyond = int((1 - CONFIDENCE) / 2 * chosen.size)
        return float(chosen[beyond]), float(chosen[-1 - beyond])


def choose_level(
    rule: Literal["knee", "pivot"],
    values: pd.DataFrame,
    baseline: pd.Series,
    rng: np.random.Generator,
    resamples: int = 5000,
) -> Choice:
    """The level that a rule chooses by the improvements over the baseline; higher is better.

    The improvement of a level is the mean over seeds of its value minus the baseline's.

    *knee*: the smallest level whose mean paired shortfall to the best level (the smallest of
    equals) is at most one standard error of that shortfall, sd/√n over seeds (Breiman et al. 1984).
    None if the best level is not better than the baseline, or with fewer than two seeds.

    *pivot*: the last level before the improvement first changes its sign; one of exactly 0 has no
    sign and is passed over. None without a change.
    """
    data, without = complete_seeds(values)
    gains = data.sub(baseline.reindex(data.index), axis=0).dropna()
    table, n, levels = gains.to_numpy(dtype=np.float64), len(gains), [*gains.columns, None]
    place, fewest = (_knee, 2) if rule == "knee" else (_pivot, 1)
    level = levels[place(table[None])[0]] if n >= fewest else None
    drawn = np.array([], np.intp)
    if n > 1:  # a seed is drawn with all its levels
        drawn = place(table[rng.integers(n, size=(resamples, n))])
    means = table.mean(axis=0) if n else np.array([])
    best = levels[np.argmax(means)] if n and rule == "knee" else None
    changes = len(sign_changes(means)) if rule == "pivot" else None
    return Choice(level, n, np.array(levels, np.float64)[drawn], without, best, changes)


def _knee(gains: NDArray[np.float64]) -> NDArray[np.intp]:
    """Place of the knee in each sample of improvements, (samples, seeds, levels); -1 for none."""
    best = np.argmax(gains.mean(axis=1), axis=1)[:, None, None]
    shortfall = np.take_along_axis(gains, best, axis=2) - gains
    error = shortfall.std(axis=1, ddof=1) / np.sqrt(gains.shape[1])
    knees = np.argmax(shortfall.mean(axis=1) <= error * SLACK, axis=1)
    return np.where(gains.mean(axis=1).max(axis=1) > 0, knees, -1)


def _pivot(gains: NDArray[np.float64]) -> NDArray[np.intp]:
    """The same for the pivot."""
    return np.array([(sign_changes(means) or [-1])[0] for means in gains.mean(axis=1)])


def not_identifiable(choice: Choice, levels: Sequence[float]) -> str:
    """Why a knee or a pivot is not identifiable among the levels that were to be tried, or "".

    Rule: it is identifiable if a level was chosen among at least three levels and from at least
    two seeds, its 95 % interval over resampled seeds exists and is not the whole range of levels,
    and, for a pivot, the improvement changes its sign once only.
    """
    tried = sorted(set(map(float, levels)) - set(choice.without_values))
    if len(tried) < MIN_LEVELS:
        return f"{len(tried)} levels with runs; {MIN_LEVELS} are needed"
    if choice.n < 2:
        return f"{choice.n} seeds that all levels have; 2 are needed"
    if choice.level is None and choice.changes is None:
        return "no level is better than the baseline"
    if choice.level is None:
        return "the improvement does not change its sign"
    if (choice.changes or 0) > 1:
        return f"the improvement changes its sign {choice.changes} times"
    interval = choice.interval()
    if interval is None:
        return f"{np.isnan(choice.drawn).mean():.0%} of the resamples choose no level"
    if interval == (tried[0], tried[-1]):
        return f"the interval over seeds is the whole range, {tried[0]:g} to {tried[-1]:g}"
    return ""


def sign_changes(values: NDArray[np.float64]) -> list[int]:
    """Positions after which the sign changes, zeros passed over."""
    signs = np.sign(values)
    places = np.flatnonzero(signs)
    return [int(a) for a, b in pairwise(places) if signs[a] != signs[b]]

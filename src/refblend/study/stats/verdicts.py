"""The four verdicts on a contrast: better, worse, equivalent, undecided.

One rule for all of them. Each contrast is tested for a difference (exact, two-sided) and for
equivalence (two one-sided exact tests within ± margin); both p values are adjusted by Holm within
the family, each kind for itself. *equivalent* where the second is at most α, else *better* or
*worse* where the first is, else *undecided*. A difference that is real but within the margin is
thus *equivalent*: it is too small to matter. Of one contrast at most one of the two null hypotheses
is true, so the chance of any false better or worse in a family is at most α, and so is that of any
false equivalent.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from refblend.study.stats.exact import equivalence_p, exact_p, fewest_seeds, holm, least_p
from refblend.study.stats.power import (
    Design,
    least_detectable,
    power_of_difference,
    power_of_equivalence,
    seeds_for,
)
from refblend.study.stats.statistics import Interval, student_interval

VERDICTS = ("better", "worse", "equivalent", "undecided")
POWER = 0.8
"""Power of the numbers of seeds and of the detectable differences that are named."""


@dataclass(frozen=True)
class Contrast:
    """The runs of two arms on one endpoint, by seed; failed runs are left out."""

    treated: pd.Series
    reference: pd.Series
    margin: float
    """Differences within ± this count as equivalent."""
    higher_is_better: bool = True

    def runs(self, paired: bool) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Both arms' values; of the seeds that both have, where ``paired``."""
        x, y = self.treated.dropna(), self.reference.dropna()
        if paired:
            both = pd.concat([x, y], axis=1, join="inner")
            x, y = both.iloc[:, 0], both.iloc[:, 1]
        return x.to_numpy(np.float64), y.to_numpy(np.float64)


@dataclass(frozen=True)
class Outcome:
    """What is known of a contrast; differences are treated − reference."""

    paired: bool
    n: int
    """Pairs, or runs of the arm that has fewer."""
    difference: Interval
    """Student's interval of pairs, Welch's of independent arms, at 1 − α, not adjusted."""
    p: float
    p_adjusted: float
    p_equivalence: float
    p_equivalence_adjusted: float
    least_p_adjusted: float
    """The smallest adjusted p of a difference that these seeds can give in this family."""
    verdict: str
    detectable: float
    """The smallest true difference that Student's test at α / family finds with these seeds and a
    power of 80 %; ``least_p_adjusted`` says whether the exact test can find any."""
    seeds_needed: int | None
    """Seeds per arm for which a difference of the margin is found, and none shown to be
    equivalent, each with a power of 80 %, and with which the exact test can reach α / family;
    null below two runs, or where no number is enough."""


def is_paired(contrasts: Sequence[Contrast]) -> bool:
    """Whether contrasts of one experiment and endpoint are compared seed by seed.

    Rule: paired if that gives the narrower intervals, Student's of the pairs against Welch's of all
    runs, by their squared widths summed over the contrasts; the means play no part, so the choice
    favours neither arm. Where nothing varies or nothing is known: paired. Where no contrast has two
    pairs, but one has two runs of both arms: independent.
    """
    if not any(contrast.runs(paired=True)[0].size >= 2 for contrast in contrasts):
        sizes = [[arm.size for arm in contrast.runs(paired=False)] for contrast in contrasts]
        return not any(min(arms) >= 2 for arms in sizes)
    widths = {True: 0.0, False: 0.0}
    for contrast in contrasts:
        pairs, runs = contrast.runs(paired=True), contrast.runs(paired=False)
        if pairs[0].size >= 2:
            for paired, (x, y) in ((True, pairs), (False, runs)):
                interval = interval_of(x, y, paired, 0.95)
                widths[paired] += (interval.high - interval.low) ** 2
    return widths[True] <= widths[False]


def decide(contrasts: Sequence[Contrast], paired: Sequence[bool], alpha: float) -> list[Outcome]:
    """The verdicts of one family, whose contrasts are adjusted together, at its level ``alpha``.

    ``paired`` is of each, as :func:`is_paired` says of its experiment and endpoint.
    """
    runs = [contrast.runs(each) for contrast, each in zip(contrasts, paired, strict=True)]
    p = [exact_p(*xy, each) for xy, each in zip(runs, paired, strict=True)]
    equal = [
        equivalence_p(*xy, each, contrast.margin)
        for xy, each, contrast in zip(runs, paired, contrasts, strict=True)
    ]
    least = [least_p(x.size, y.size, each) for (x, y), each in zip(runs, paired, strict=True)]
    adjusted, adjusted_equal, adjusted_least = holm(p), holm(equal), holm(least)
    found = []
    for i, contrast in enumerate(contrasts):
        x, y = runs[i]
        interval = interval_of(x, y, paired[i], 1 - alpha)
        detectable, needed = planned(x, y, paired[i], contrast.margin, alpha / len(contrasts))
        values = (float(adjusted[i]), float(adjusted_equal[i]))
        found.append(
            Outcome(
                paired[i], interval.n, interval, p[i], values[0], equal[i], values[1],
                float(adjusted_least[i]), verdict_of(interval.estimate, values, contrast, alpha),
                detectable, needed,
            )
        )  # fmt: skip
    return found


def verdict_of(
    difference: float, adjusted: tuple[float, float], contrast: Contrast, alpha: float
) -> str:
    """The rule of the module's head; ``adjusted`` are p of a difference and of equivalence."""
    if adjusted[1] <= alpha:
        return "equivalent"
    if adjusted[0] > alpha:
        return "undecided"
    return "better" if (difference > 0) == contrast.higher_is_better else "worse"


def interval_of(
    x: NDArray[np.float64], y: NDArray[np.float64], paired: bool, confidence: float
) -> Interval:
    """Student's interval of paired differences, Welch's of two independent means."""
    if paired:
        return student_interval(x - y, confidence)
    n = min(x.size, y.size)
    estimate = float(x.mean() - y.mean()) if n else math.nan
    if n < 2:
        return Interval(estimate, math.nan, math.nan, n)
    if np.ptp(x) == np.ptp(y) == 0:
        return Interval(estimate, estimate, estimate, n)
    with warnings.catch_warnings():  # of an arm whose runs are all equal, which is no loss here
        warnings.filterwarnings("ignore", "Precision loss", RuntimeWarning)
        found = stats.ttest_ind(x, y, equal_var=False).confidence_interval(confidence)
    return Interval(estimate, float(found.low), float(found.high), n)


def planned(
    x: NDArray[np.float64], y: NDArray[np.float64], paired: bool, margin: float, alpha: float
) -> tuple[float, int | None]:
    """The least detectable difference with these seeds, and the seeds that the margin takes."""
    if min(x.size, y.size) < 2:
        return math.nan, None
    fewest = fewest_seeds(alpha, paired)
    own = [np.var(x - y, ddof=1)] if paired else [np.var(x, ddof=1), np.var(y, ddof=1)]
    variance = float(np.mean(own))
    if variance == 0:
        return 0.0, fewest
    design = Design(math.sqrt(variance), paired, alpha)
    # As many seeds per arm as would give the standard error that arms of these sizes have.
    error = own[0] / x.size if paired else own[0] / x.size + own[1] / y.size
    n = max(2, round(variance * (1 if paired else 2) / error))
    different = seeds_for(lambda seeds: power_of_difference(design, seeds, margin), POWER)
    equal = seeds_for(lambda seeds: power_of_equivalence(design, seeds, margin), POWER)
    asked = [seeds for seeds in (different, equal, fewest) if seeds is not None]
    return least_detectable(design, n, POWER), max(asked) if len(asked) == 3 else None

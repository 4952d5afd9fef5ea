"""The four verdicts on a contrast: better, worse, equivalent, undecided.

One rule for all of them. Each contrast is tested for a difference (exact, two-sided) and for
equivalence (two one-sided exact tests within ± margin); both p values are adjusted by Holm within
the family, each kind for itself. *equivalent* where the second is at most α, else *better* or
*worse* where the first is, else *undecided*. A difference that is real but within the margin is
thus *equivalent*: it is too small to matter. Of one contrast at most one of the two null hypotheses
is true. So for a given choice of paired or independent tests the chance of any false better or
worse in a family is at most α, and so is that of any false equivalent.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from refblend.study.stats.exact import equivalence_p, exact_p, fewest_seeds, holm, least_p
from refblend.study.stats.power import (
    Design,
    least_detectable,
    seeds_of_difference,
    seeds_of_equivalence,
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


def decide(contrasts: Sequence[Contrast], paired: Sequence[bool], alpha: float) -> pd.DataFrame:
    """The verdicts of one family, whose contrasts are adjusted together, at its level ``alpha``.

    ``paired`` is of each, as :func:`is_paired` says of its experiment and endpoint. A row for each,
    with differences treated − reference:

    * ``n``: pairs, or runs of the arm that has fewer.
    * ``estimate``, ``low``, ``high``: Student's interval of pairs, Welch's of independent arms, at
      1 − α, not adjusted.
    * ``p``, ``p_equivalence``, and both ``_adjusted``; ``least_p_adjusted`` is the smallest of a
      difference that these seeds can give in this family.
    * ``verdict``.
    * ``detectable``: the smallest true difference that Student's test at α / family finds with
      these seeds and a power of 80 %; ``least_p_adjusted`` says whether the exact test can find
      any.
    * ``seeds_needed``: seeds per arm for which a difference of the margin is found, and none shown
      to be equivalent, each with a power of 80 %, and with which the exact test can reach
      α / family; missing below two runs, or where no number is enough.
    """
    rows = []
    for contrast, each in zip(contrasts, paired, strict=True):
        x, y = contrast.runs(each)
        found = interval_of(x, y, each, 1 - alpha)
        row: dict[str, Any] = found._asdict() | {"p": exact_p(x, y, each)}
        row["p_equivalence"] = equivalence_p(x, y, each, contrast.margin)
        row["least_p"] = least_p(x.size, y.size, each)
        plan = planned(x, y, each, contrast.margin, alpha / len(contrasts))
        rows.append(row | dict(zip(("detectable", "seeds_needed"), plan, strict=True)))
    table = pd.DataFrame(rows)
    for name in ("p", "p_equivalence", "least_p"):
        table[f"{name}_adjusted"] = holm(table[name])
    ahead = (table.estimate > 0) == [contrast.higher_is_better for contrast in contrasts]
    differs = np.where(ahead, "better", "worse")
    differs = np.where(table.p_adjusted <= alpha, differs, "undecided")
    table["verdict"] = np.where(table.p_equivalence_adjusted <= alpha, "equivalent", differs)
    return table


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
    own = [np.var(x - y, ddof=1)] if paired else [np.var(x, ddof=1), np.var(y, ddof=1)]
    variance = float(np.mean(own))
    if variance == 0:
        return 0.0 if min(x.size, y.size) > 2 else math.nan, fewest_seeds(alpha, paired)
    design = Design(math.sqrt(variance), paired, alpha)
    # As many seeds per arm as would give the standard error that arms of these sizes have.
    error = own[0] / x.size if paired else own[0] / x.size + own[1] / y.size
    n = max(2, round(variance * (1 if paired else 2) / error))
    found = seeds_of_difference(design, margin, POWER)
    equal = seeds_of_equivalence(design, margin, POWER)
    enough = max(found, equal) if found and equal else None
    return least_detectable(design, n, POWER), enough

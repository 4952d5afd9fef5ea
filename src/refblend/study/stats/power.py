"""How many seeds a comparison needs, and which difference a number of seeds can detect.

Power of Student's test by the noncentral t distribution, and of two one-sided tests for equivalence
(Schuirmann, J. Pharmacokinet. Biopharm. 15, 1987) by integration over the sample's deviation. A
difference is *paired* (seed by seed, deviation of the differences) or between two *independent*
groups (deviation of one run).
"""

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from scipy import integrate, optimize, special, stats

from refblend.study.stats.exact import fewest_seeds

LARGEST = 10_000
"""Seeds beyond which a study is called infeasible."""


@dataclass(frozen=True)
class Design:
    """How two arms are compared."""

    deviation: float
    """Of the paired differences, or of one run's value where arms are independent."""
    paired: bool = False
    alpha: float = 0.05
    """Level of the two-sided test of a difference, and of each one-sided test of equivalence."""

    def error(self, seeds: int) -> float:
        """Standard error of the difference with so many seeds per arm."""
        return self.deviation * math.sqrt((1 if self.paired else 2) / seeds)

    def freedom(self, seeds: int) -> int:
        """Degrees of freedom of its estimate."""
        return seeds - 1 if self.paired else 2 * (seeds - 1)


def power_of_difference(design: Design, seeds: int, effect: float) -> float:
    """Chance that a two-sided test finds a true difference of ``effect``; 0 below two seeds."""
    if seeds < 2:
        return 0.0
    freedom, shift = design.freedom(seeds), abs(effect) / design.error(seeds)
    critical = stats.t.ppf(1 - design.alpha / 2, freedom)
    above = stats.nct.sf(critical, freedom, shift)
    below = stats.nct.cdf(-critical, freedom, shift)
    return float(above + (below if math.isfinite(below) else 0.0))


def power_of_equivalence(design: Design, seeds: int, margin: float, effect: float = 0.0) -> float:
    """Chance that both one-sided tests put a true difference of ``effect`` within ± ``margin``."""
    if seeds < 2:
        return 0.0
    freedom, error = design.freedom(seeds), design.error(seeds)
    critical = stats.t.ppf(1 - design.alpha, freedom)
    # Both tests reject while |difference| stays below margin − critical · estimated error.
    largest = margin / (critical * error)

    def within(ratio: float) -> float:
        """Given estimated error / true error: the chance, times the ratio's density."""
        half = margin - critical * ratio * error
        chance = special.ndtr((half - effect) / error) - special.ndtr((-half - effect) / error)
        if ratio == 0:
            return 0.0
        squared = freedom * ratio**2
        # Of the chi-square distribution; scipy.stats' own takes fifty times as long.
        logarithm = (freedom / 2 - 1) * math.log(squared / 2) - squared / 2
        density = math.exp(logarithm - math.lgamma(freedom / 2)) / 2
        return float(chance * density * 2 * freedom * ratio)

    # Beyond six deviations of the estimated error nothing is left to add.
    ceiling = min(largest, 1 + 6 / math.sqrt(2 * freedom))
    return min(1.0, float(integrate.quad(within, 0, ceiling, limit=200)[0]))


def seeds_for(power_at: Callable[[int], float], power: float, fewest: int | None = 2) -> int | None:
    """The fewest seeds per arm, ``fewest`` or more, whose power, which never falls, is enough.

    None beyond LARGEST, and for ``fewest=None``: no number is enough.
    """
    if fewest is None or power_at(LARGEST) < power:
        return None
    return fewest + bisect_left(range(fewest, LARGEST), power, key=power_at)


def seeds_of_difference(design: Design, effect: float, power: float) -> int | None:
    """The fewest seeds per arm that find ``effect``, and with which the exact test can reach α.

    None where no number is enough.
    """
    power_at = partial(power_of_difference, design, effect=effect)
    return seeds_for(power_at, power, fewest_seeds(design.alpha, design.paired))


def seeds_of_equivalence(design: Design, margin: float, power: float) -> int | None:
    """The same to show that two equal arms lie within ± ``margin``."""
    power_at = partial(power_of_equivalence, design, margin=margin)
    return seeds_for(power_at, power, fewest_seeds(2 * design.alpha, design.paired))


def least_detectable(design: Design, seeds: int, power: float) -> float:
    """The smallest true difference that so many seeds find with this power; inf below two."""
    if seeds < 2:
        return math.inf
    top = design.error(seeds)
    while power_of_difference(design, seeds, top) < power:
        top *= 2
    excess = lambda effect: power_of_difference(design, seeds, effect) - power  # noqa: E731
    return float(optimize.brentq(excess, 0.0, top))

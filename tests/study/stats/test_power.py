"""Power against simulation, and against figures worked out elsewhere."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from refblend.study.stats.power import (
    Design,
    least_detectable,
    power_of_difference,
    power_of_equivalence,
    seeds_for,
)


def simulated(design: Design, seeds: int, effect: float, margin: float) -> tuple[float, float]:
    """Shares of simulated studies that find a difference, and equivalence."""
    rng = np.random.default_rng(3)
    studies = 20_000
    if design.paired:
        data = rng.normal(effect, design.deviation, (studies, seeds))
        mean, error = data.mean(1), data.std(1, ddof=1) / math.sqrt(seeds)
    else:
        one, two = rng.normal(0, design.deviation, (2, studies, seeds))
        mean = effect + one.mean(1) - two.mean(1)
        error = np.sqrt((one.var(1, ddof=1) + two.var(1, ddof=1)) / seeds)
    freedom = seeds - 1 if design.paired else 2 * seeds - 2
    found = np.abs(mean / error) > stats.t.ppf(1 - design.alpha / 2, freedom)
    critical = stats.t.ppf(1 - design.alpha, freedom)
    equal = (mean + critical * error < margin) & (mean - critical * error > -margin)
    return float(found.mean()), float(equal.mean())


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize(("seeds", "effect"), [(3, 0.05), (5, 0.055), (20, 0.02), (12, 0.0)])
def test_power_is_that_of_simulated_studies(paired: bool, seeds: int, effect: float) -> None:
    design = Design(0.03, paired)
    found, equal = simulated(design, seeds, effect, margin=0.03)
    assert power_of_difference(design, seeds, effect) == pytest.approx(found, abs=0.012)
    assert power_of_equivalence(design, seeds, 0.03, effect) == pytest.approx(equal, abs=0.012)


def test_figures_worked_out_elsewhere() -> None:
    # Five seeds with a deviation of 0.0325 tell 0.055 apart; 0.02 takes 23.
    design = Design(0.0325, paired=True)
    assert least_detectable(design, 5, 0.8) == pytest.approx(0.055, abs=0.001)
    assert seeds_for(lambda n: power_of_difference(design, n, 0.02), 0.8) == 23
    # Cohen (1988), table 2.4.1: d = 0.5, two-sided 5 %, power 0.80: 64 per group.
    assert seeds_for(lambda n: power_of_difference(Design(1.0), n, 0.5), 0.8) == 64


@settings(deadline=None)
@given(deviation=st.floats(0.005, 0.2), seeds=st.integers(2, 60), power=st.floats(0.2, 0.95))
def test_the_least_detectable_difference_has_that_power(deviation, seeds, power) -> None:
    design = Design(deviation)
    effect = least_detectable(design, seeds, power)
    assert power_of_difference(design, seeds, effect) == pytest.approx(power, abs=1e-6)


def test_seeds_are_the_fewest_and_none_where_it_is_hopeless() -> None:
    assert seeds_for(lambda n: n / 100, 0.5) == 50
    assert seeds_for(lambda n: 1.0, 0.5) == 2
    assert seeds_for(lambda n: 0.1, 0.5) is None


def test_one_seed_shows_nothing() -> None:
    assert power_of_difference(Design(0.1), 1, 9.0) == 0.0
    assert power_of_equivalence(Design(0.1), 1, 9.0) == 0.0
    assert least_detectable(Design(0.1), 1, 0.8) == math.inf

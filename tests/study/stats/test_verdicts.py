"""The four verdicts on data whose answer is known, their error rates, and their design."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from refblend.study.stats import verdicts
from refblend.study.stats.exact import exact_p
from refblend.study.stats.power import Design, power_of_difference
from refblend.study.stats.verdicts import VERDICTS, Contrast, interval_of, is_paired

MARGIN = 0.02


def decide(contrasts: list[Contrast], paired: list[bool], alpha: float) -> list:
    return list(verdicts.decide(contrasts, paired, alpha).itertuples())


def series(values: object) -> pd.Series:
    data = np.asarray(values, dtype=float)
    return pd.Series(data, index=range(1, len(data) + 1))


def contrast(effect: float, deviation: float, seeds: int = 12, stream: int = 0) -> Contrast:
    """Independent arms whose sample means differ by exactly ``effect``."""
    rng = np.random.default_rng([stream, seeds])
    x, y = (stats.zscore(rng.normal(size=seeds)) * deviation for _ in range(2))
    return Contrast(series(0.5 + effect + x), series(0.5 + y), MARGIN)


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize(
    ("effect", "deviation", "verdict"),
    [
        (0.06, 0.01, "better"),
        (-0.06, 0.01, "worse"),
        (0.0, 0.01, "equivalent"),
        (0.01, 0.002, "equivalent"),  # real, and too small to matter
        (0.02, 0.05, "undecided"),
        (0.021, 0.001, "better"),
    ],
)
def test_each_verdict(effect: float, deviation: float, verdict: str, paired: bool) -> None:
    (found,) = decide([contrast(effect, deviation)], [paired], 0.05)
    assert found.verdict == verdict
    assert found.estimate == pytest.approx(effect)
    assert found.n == 12


def test_less_may_be_better() -> None:
    found = decide([Contrast(series([1, 2, 3, 2, 1, 2, 3]), series([8, 9] * 3 + [9]), 1.0, False)],
                   [False], 0.05)  # fmt: skip
    assert found[0].verdict == "better"


def test_few_seeds_decide_nothing_and_say_so() -> None:
    (found,) = decide([contrast(0.3, 0.001, seeds=3)], [True], 0.05)
    assert found.verdict == "undecided"
    assert found.least_p_adjusted == 0.25
    (lonely,) = decide([Contrast(series([0.5]), series([0.4]), MARGIN)], [True], 0.05)
    assert (lonely.verdict, lonely.p, lonely.seeds_needed) == ("undecided", 1.0, None)


def test_a_family_is_adjusted_by_holm() -> None:
    family = [contrast(effect, 0.03, 8, stream) for stream, effect in enumerate((0.05, 0.04, 0.0))]
    found = decide(family, [False] * 3, 0.05)
    smallest, middle, largest = sorted(found, key=lambda outcome: outcome.p)
    assert smallest.p_adjusted == pytest.approx(min(1, 3 * smallest.p))
    assert middle.p_adjusted == pytest.approx(min(1, max(3 * smallest.p, 2 * middle.p)))
    assert largest.p_adjusted >= middle.p_adjusted
    alone = decide(family[:1], [False], 0.05)[0]
    assert alone.p_adjusted == alone.p <= found[0].p_adjusted


@settings(deadline=None, max_examples=20)
@given(
    st.lists(st.floats(0, 1), min_size=2, max_size=7),
    st.lists(st.floats(0, 1), min_size=2, max_size=7),
    st.booleans(),
)
def test_exchanging_the_arms_exchanges_better_and_worse(x, y, paired) -> None:
    n = min(len(x), len(y)) if paired else None
    one, two = series(x[:n]), series(y[:n])
    (there,) = decide([Contrast(one, two, MARGIN)], [paired], 0.3)
    (back,) = decide([Contrast(two, one, MARGIN)], [paired], 0.3)
    swapped = {"better": "worse", "worse": "better"}
    assert there.verdict in VERDICTS
    assert back.verdict == swapped.get(there.verdict, there.verdict)
    assert back.p == there.p
    assert back.estimate == pytest.approx(-there.estimate)


def test_false_verdicts_are_as_rare_as_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    # Seeds are not needed here, and take most of the time.
    monkeypatch.setattr("refblend.study.stats.verdicts.planned", lambda *_: (0.0, None))
    rng = np.random.default_rng(11)
    wrong = {"equal": 0, "margin": 0}
    for _ in range(200):
        noise = rng.normal(0, 0.02, (4, 6))
        null = Contrast(series(noise[0]), series(noise[1]), MARGIN)
        edge = Contrast(series(noise[2] + MARGIN), series(noise[3]), MARGIN)
        outcomes = decide([null, edge], [False, False], 0.05)
        wrong["equal"] += outcomes[0].verdict in ("better", "worse")
        wrong["margin"] += outcomes[1].verdict == "equivalent"
    # Binomial, 200 studies at 0.05: above 20 with a chance of 0.001.
    assert max(wrong.values()) <= 20


def test_intervals_are_scipys() -> None:
    x, y = np.random.default_rng(4).normal(size=(2, 9))
    pairs = stats.ttest_rel(x, y).confidence_interval(0.9)
    assert interval_of(x, y, True, 0.9).low == pytest.approx(pairs.low)
    # Welch's by the textbook.
    a, b = x.var(ddof=1) / 9, y[:6].var(ddof=1) / 6
    freedom = (a + b) ** 2 / (a**2 / 8 + b**2 / 5)
    half = stats.t.ppf(0.95, freedom) * math.sqrt(a + b)
    found = interval_of(x, y[:6], False, 0.9)
    assert found.high == pytest.approx(x.mean() - y[:6].mean() + half)
    assert found.n == 6


@pytest.mark.filterwarnings("error")
def test_an_arm_whose_runs_are_all_equal_has_an_interval() -> None:
    """By Welch's formula: the other arm alone gives standard error and degrees of freedom."""
    x, y = np.full(4, 0.1 + 0.2), np.array([0.1, 0.3, 0.2, 0.6])
    found = interval_of(x, y, False, 0.95)
    half = stats.t.ppf(0.975, 3) * y.std(ddof=1) / 2
    assert (found.low, found.high) == pytest.approx((0.0 - half, 0.0 + half))


def test_pairs_are_used_where_the_seed_explains_something() -> None:
    rng = np.random.default_rng(5)
    shared, own = rng.normal(0, 1, 10), rng.normal(0, 0.3, (2, 10))
    alike = Contrast(series(shared + own[0]), series(shared + own[1]), MARGIN)
    apart = Contrast(series(own[0]), series(own[1]), MARGIN)
    against = Contrast(series(shared), series(-shared), MARGIN)
    assert is_paired([alike])
    assert not is_paired([against])
    # Many more runs of one arm are worth more than a little that pairs share.
    many = pd.Series(rng.normal(0, 0.3, 60), index=range(1, 61))
    few = many.iloc[:10] * 0.2 + series(rng.normal(0, 0.1, 10))
    assert is_paired([Contrast(few, many.iloc[:10], MARGIN)])
    assert not is_paired([Contrast(few, many, MARGIN)])
    # Without two pairs the runs of both arms still tell something.
    later = pd.Series(np.arange(4.0), index=range(101, 105))
    assert not is_paired([Contrast(series(np.arange(4.0)), later, MARGIN)])
    assert is_paired([Contrast(series(np.zeros(1)), later, MARGIN)])
    # A shift of one arm, of whatever size, does not change the choice.
    shifted = Contrast(apart.treated + 5, apart.reference, MARGIN)
    assert is_paired([shifted]) == is_paired([apart])


def test_arms_of_other_sizes_and_spreads_keep_the_level_and_the_power() -> None:
    """Ten quiet runs against fifty restless ones, whose spread must not be taken for theirs."""
    rng = np.random.default_rng(7)
    false, found = 0, 0
    for _ in range(40):
        x, y = rng.normal(0, 0.01, 10), rng.normal(0, 0.03, 50)
        false += exact_p(x, y, False) <= 0.05
        found += exact_p(x + 0.016, y, False) <= 0.05
    # Binomial at 0.05: above 6 with a chance of 0.003. Welch's test finds 0.90 of the shifts
    # (3 standard errors of the difference), one that takes the variance of all runs 0.5.
    assert false <= 6
    assert found >= 29


def test_the_seeds_that_are_named_can_reach_the_level_and_have_the_power() -> None:
    for paired, fewest in ((True, 6), (False, 4)):  # 2/2⁶ and 2/70 are the first below 0.05
        (found,) = decide([contrast(0.5, 1e-6, seeds=3)], [paired], 0.05)
        assert found.seeds_needed == fewest
    made = contrast(0.0, 0.03, seeds=10)
    (found,) = decide([made], [False], 0.05)
    design = Design(0.03 * math.sqrt(10 / 9))
    assert found.seeds_needed is not None
    assert power_of_difference(design, found.seeds_needed, MARGIN) >= 0.8
    assert power_of_difference(design, 10, found.detectable) == pytest.approx(0.8, abs=1e-6)

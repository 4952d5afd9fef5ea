import itertools
import math
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from refblend.study.stats.comparisons import (
    Comparison,
    best_configuration,
    compare_pairs,
    probability_of_improvement,
)
from refblend.study.stats.statistics import bootstrap_interval, paired_values

QUARTERS = st.lists(st.integers(0, 4).map(lambda i: i / 4), min_size=1, max_size=8)


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def frame(**arms: list[float]) -> pd.DataFrame:
    return pd.DataFrame(arms, index=pd.RangeIndex(1, 1 + len(next(iter(arms.values())))))


@settings(deadline=None)
@given(QUARTERS, QUARTERS)
def test_probability_of_improvement_counts_pairs(x: list[float], y: list[float]) -> None:
    wins = [Fraction(1) if a > b else Fraction(1, 2) if a == b else Fraction(0)
            for a in x for b in y]  # fmt: skip
    result = probability_of_improvement(x, y, rng(), resamples=50)
    assert result.estimate == pytest.approx(float(sum(wins) / len(wins)), abs=1e-12)
    assert result.n == min(len(x), len(y))
    if result.n < 2:
        assert math.isnan(result.low)
        assert math.isnan(result.high)
    else:
        assert 0 <= result.low <= result.high <= 1
    other = probability_of_improvement(y, x, rng(), resamples=50)
    assert result.estimate + other.estimate == pytest.approx(1)


def test_probability_of_improvement_resamples_like_a_slow_loop() -> None:
    data = np.random.default_rng(3)
    x, y = data.normal(0.3, 1, 9), data.normal(0, 1, 7)
    means = []
    for _ in range(4000):
        a, b = data.choice(x, x.size), data.choice(y, y.size)
        means.append(np.mean([np.mean(value > b) for value in a]))
    result = probability_of_improvement(x, y, rng())
    assert [result.low, result.high] == pytest.approx(np.quantile(means, [0.025, 0.975]), abs=0.03)


def test_probability_of_improvement_says_when_it_cannot_say_more() -> None:
    assert probability_of_improvement([], [1.0], rng()).n == 0
    lone = probability_of_improvement([9], [0, 9], rng())
    assert lone.estimate == 1.5 / 2
    assert math.isnan(lone.low)
    with pytest.raises(ValueError, match="NaN"):
        probability_of_improvement([1.0, math.nan], [1.0], rng())


def ten_seeds() -> pd.DataFrame:
    draws = np.random.default_rng(1)
    off = draws.normal(0.5, 0.1, 10)
    return frame(
        off=off.tolist(),
        better=(off + draws.normal(0.1, 0.01, 10)).tolist(),
        worse=(off - draws.normal(0.1, 0.01, 10)).tolist(),
        same=(off + np.array([0.05, -0.05] * 5)).tolist(),
    )


def by_arm(values: pd.DataFrame, **options: float) -> dict[str, Comparison]:
    pairs = [(str(arm), "off") for arm in values if arm != "off"]
    return {c.arm: c for c in compare_pairs(values, pairs, rng(), **options)}


def test_verdicts_of_planted_differences() -> None:
    result = by_arm(ten_seeds())
    assert {arm: c.verdict for arm, c in result.items()} == {
        "better": "better",
        "worse": "worse",
        "same": "undecided",
    }
    better = result["better"]
    assert better.p == 2 / 2**10
    assert better.p_holm == 3 * 2 / 2**10  # the smallest two of three are equal
    assert (better.smallest_p, better.smallest_p_holm) == (2 / 2**10, 3 * 2 / 2**10)
    assert better.smallest_p_holm <= better.alpha
    assert better.difference.n == better.student.n == 10
    assert better.difference.low < 0.1 < better.difference.high


def test_small_differences_are_equivalent_and_directions_count() -> None:
    draws = np.random.default_rng(5).normal(0.5, 0.1, 10)
    close = (draws + np.array([0.004, -0.003] * 5)).tolist()
    values = frame(off=draws.tolist(), close=close, far=(draws + 0.3).tolist())
    result = by_arm(values, margin=0.02)
    assert (result["close"].verdict, result["far"].verdict) == ("equivalent", "better")
    assert by_arm(values)["close"].verdict == "undecided"
    assert by_arm(values, margin=0.02, higher_is_better=False)["far"].verdict == "worse"
    assert by_arm(values, higher_is_better=None)["far"].verdict == "higher"


@pytest.mark.parametrize(
    ("seeds", "p", "reachable"), [(3, 0.25, False), (5, 0.0625, False), (6, 0.03125, True)]
)
def test_few_seeds_cannot_reach_five_percent(seeds: int, p: float, reachable: bool) -> None:
    values = frame(off=[0.0] * seeds, arm=[1.0 + i for i in range(seeds)])
    (comparison,) = compare_pairs(values, [("arm", "off")], rng())
    assert comparison.difference.excludes_zero
    assert comparison.p == comparison.smallest_p == p
    assert (comparison.smallest_p_holm <= 0.05) is reachable
    assert comparison.verdict == ("better" if reachable else "undecided")


def test_a_verdict_is_by_the_p_that_is_adjusted_for_all_arms() -> None:
    # All six differences are positive (p = 1/32), but among four arms Holm asks for more.
    values = frame(off=[0.0] * 6, one=[1.0] * 6, two=[1.0] * 6, three=[1.0, -1.0] * 3)
    result = by_arm(values)
    assert result["one"].p == 1 / 32
    assert result["one"].p_holm == 3 / 32
    assert result["one"].verdict == "undecided"
    assert by_arm(values, alpha=0.1)["one"].verdict == "better"
    assert result["three"].p == 1.0


def test_missing_runs_are_said_not_dropped() -> None:
    values = frame(off=[0.1, 0.2, 0.3], part=[0.2, math.nan, 0.5], failed=[math.nan] * 3)
    result = by_arm(values)
    assert result["part"].difference.n == 2
    assert result["part"].difference.estimate == pytest.approx(0.15)
    failed = result["failed"]
    assert (failed.difference.n, failed.p, failed.smallest_p) == (0, 1.0, 1.0)
    assert failed.verdict == "undecided"
    assert math.isnan(failed.student.low)


def test_the_smallest_adjusted_p_with_unequal_seeds() -> None:
    full = [float(i) for i in range(1, 9)]
    values = frame(off=[0.0] * 8, full=full, short=full[:3] + [math.nan] * 5)
    result = by_arm(values)
    assert result["full"].smallest_p_holm == 2 * 2 / 2**8
    assert result["short"].smallest_p_holm == 0.25


def test_an_arm_more_changes_no_other_interval() -> None:
    values = ten_seeds()
    few, all_arms = by_arm(values[["off", "same"]]), by_arm(values)
    assert few["same"].difference == all_arms["same"].difference
    assert few["same"].p == all_arms["same"].p


def test_differences_are_bootstrapped_from_the_paired_values() -> None:
    values = ten_seeds()
    comparison = by_arm(values)["better"]
    stream = int(rng().integers(2**63))
    paired = paired_values(values["better"], values["off"])
    expected = bootstrap_interval(paired, np.random.default_rng(stream), resamples=5000)
    assert comparison.difference == expected


def test_bad_frames_are_refused() -> None:
    with pytest.raises(ValueError, match="not columns"):
        compare_pairs(frame(on=[1.0, 2.0]), [("on", "off")], rng())
    twice = pd.DataFrame({"off": [1.0, 2.0]}, index=[1, 1])
    with pytest.raises(ValueError, match="every seed must be one row"):
        compare_pairs(twice, [("off", "off")], rng())
    with pytest.raises(ValueError, match="every seed must be one row"):
        best_configuration(twice, rng())


def test_best_configuration_of_planted_arms() -> None:
    values = ten_seeds()
    values["nearly"] = values["better"] - np.array([0.02, -0.01] * 5)
    best = best_configuration(values, rng())
    assert best.arm == "better"
    assert best.not_distinguishable == ("nearly",)
    assert best.n == 10
    assert best.gaps["off"].estimate == pytest.approx((values.better - values.off).mean())
    assert 0.5 < best.share < 1
    lowest = best_configuration(values, rng(), higher_is_better=False)
    assert (lowest.arm, lowest.not_distinguishable, lowest.share) == ("worse", (), 1.0)
    assert lowest.gaps["off"].high < 0


def test_best_configuration_by_all_resamples() -> None:
    # Three seeds have 27 equally likely resamples: the share can be counted.
    table = {"a": [0.5, 0.2, 0.4], "b": [0.3, 0.3, 0.3]}
    wins = sum(
        sum(table["a"][i] for i in drawn) >= sum(table["b"][i] for i in drawn) - 1e-12
        for drawn in itertools.product(range(3), repeat=3)
    )
    best = best_configuration(frame(**table), rng(), resamples=20000)
    assert best.arm == "a"
    assert best.share == pytest.approx(wins / 27, abs=0.015)
    gap = bootstrap_interval([0.2, -0.1, 0.1], np.random.default_rng(0), resamples=20000)
    assert best.gaps["b"].low == pytest.approx(gap.low, abs=1e-9)


def test_equal_arms_are_seldom_separated() -> None:
    draws, wrong = np.random.default_rng(9), 0
    for _ in range(200):
        values = frame(**{arm: draws.normal(size=3).tolist() for arm in "abcd"})
        best = best_configuration(values, draws, resamples=100)
        wrong += len(best.not_distinguishable) < 3
    assert wrong <= 20  # 5 % are allowed, the bootstrap alone makes 64 %


def test_simultaneous_intervals_are_bonferroni() -> None:
    best = best_configuration(ten_seeds(), rng())
    gap = ten_seeds()["better"] - ten_seeds()["same"]
    expected = stats.ttest_1samp(gap, 0).confidence_interval(1 - 0.05 / 6)
    ours = best.simultaneous["same"]
    assert (ours.low, ours.high) == pytest.approx((expected.low, expected.high))


def test_best_configuration_with_missing_runs() -> None:
    values = frame(a=[0.9, math.nan, 0.1], b=[0.2, 0.9, 0.2], failed=[math.nan] * 3)
    best = best_configuration(values, rng())
    assert (best.arm, best.n, best.without_values) == ("a", 2, ("failed",))
    one = best_configuration(values.iloc[:1], rng())
    assert (one.arm, one.n, one.not_distinguishable) == ("a", 1, ("b",))
    assert math.isnan(one.share)
    none = best_configuration(frame(a=[0.1, math.nan], b=[math.nan, 0.1]), rng())
    assert (none.arm, none.n) == (None, 0)

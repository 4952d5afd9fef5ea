import itertools
import math

import numpy as np
import pandas as pd
import pytest

from refblend.study.stats.comparisons import best_configuration


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def frame(**arms: list[float]) -> pd.DataFrame:
    return pd.DataFrame(arms, index=pd.RangeIndex(1, 1 + len(next(iter(arms.values())))))


def test_best_configuration_of_planted_arms() -> None:
    draws = np.random.default_rng(1)
    off = draws.normal(0.5, 0.1, 10)
    values = frame(
        off=off.tolist(),
        better=(off + draws.normal(0.1, 0.01, 10)).tolist(),
        worse=(off - draws.normal(0.1, 0.01, 10)).tolist(),
        same=(off + np.array([0.05, -0.05] * 5)).tolist(),
    )
    values["nearly"] = values["better"] - np.array([0.02, -0.01] * 5)
    best = best_configuration(values, rng())
    assert (best["best"], best["not_distinguishable_from"]) == ("better", "nearly")
    assert best["mean"] == pytest.approx(values.better.mean())
    assert 0.5 < best["share_best"] < 1
    lowest = best_configuration(values, rng(), higher_is_better=False)
    assert (lowest["best"], lowest["n_not_distinguishable"]) == ("worse", 0)
    assert lowest["share_best"] == 1.0


def test_best_configuration_by_all_resamples() -> None:
    # Three seeds have 27 equally likely resamples: the share can be counted.
    table = {"a": [0.5, 0.2, 0.4], "b": [0.3, 0.3, 0.3]}
    wins = sum(
        sum(table["a"][i] for i in drawn) >= sum(table["b"][i] for i in drawn) - 1e-12
        for drawn in itertools.product(range(3), repeat=3)
    )
    best = best_configuration(frame(**table), rng(), resamples=20000)
    assert best["best"] == "a"
    assert best["share_best"] == pytest.approx(wins / 27, abs=0.015)


def test_equal_arms_are_seldom_separated() -> None:
    draws, wrong = np.random.default_rng(9), 0
    for _ in range(50):
        values = frame(**{arm: draws.normal(size=3).tolist() for arm in "abcd"})
        best = best_configuration(values, draws, resamples=100)
        wrong += best["n_not_distinguishable"] < 3
    assert wrong <= 7  # 5 % are allowed


def test_best_configuration_with_missing_runs() -> None:
    values = frame(a=[0.9, math.nan, 0.1], b=[0.2, 0.9, 0.2], failed=[math.nan] * 3)
    best = best_configuration(values, rng())
    assert (best["best"], best["n"], best["without_values"]) == ("a", 2, "failed")
    one = best_configuration(values.iloc[:1], rng())
    assert (one["best"], one["n"], one["not_distinguishable_from"]) == ("a", 1, "b")
    assert math.isnan(one["share_best"])
    assert best_configuration(frame(a=[0.1, math.nan], b=[math.nan, 0.1]), rng()) is None

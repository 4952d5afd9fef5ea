"""Slope and lack of fit against the sums of squares of a balanced two-way table, in loops."""

import math
import statistics

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from refblend.study.stats.dose import dose_response


def made(doses: dict[str, float], seeds: int, bend: float, rng: np.random.Generator):
    rows = []
    for seed in range(seeds):
        common = rng.normal(0, 0.05)
        for arm, dose in doses.items():
            own = 0.4 * dose + bend * (dose - 0.3) ** 2 + common + rng.normal(0, 0.01)
            rows.append((arm, seed, dose + rng.normal(0, 0.001), own))
    return pd.DataFrame(rows, columns=["arm", "seed", "dose", "outcome"])


def by_hand(frame: pd.DataFrame) -> tuple[float, float, float, float]:
    """Slope, its standard error, F and its p of a balanced table."""
    arms, seeds = sorted(set(frame.arm)), sorted(set(frame.seed))
    y = {(r.arm, r.seed): r.outcome for r in frame.itertuples()}
    x = {arm: statistics.fmean(frame[frame.arm == arm].dose) for arm in arms}
    grand = statistics.fmean(y.values())
    of_arm = {a: statistics.fmean(y[a, s] for s in seeds) for a in arms}
    of_seed = {s: statistics.fmean(y[a, s] for a in arms) for s in seeds}
    middle = statistics.fmean(x.values())
    sxx = len(seeds) * sum((x[a] - middle) ** 2 for a in arms)
    slope = len(seeds) * sum((x[a] - middle) * (of_arm[a] - grand) for a in arms) / sxx
    error = sum((y[a, s] - of_arm[a] - of_seed[s] + grand) ** 2 for a in arms for s in seeds)
    line = sum((y[a, s] - of_seed[s] - slope * (x[a] - middle)) ** 2 for a in arms for s in seeds)
    n, freedom = len(y), (len(arms) - 1) * (len(seeds) - 1)
    line_freedom = n - len(seeds) - 1
    ratio = (line - error) / (len(arms) - 2) / (error / freedom)
    p = 1 - stats.f.cdf(ratio, len(arms) - 2, freedom)
    return slope, math.sqrt(line / line_freedom / sxx), ratio, p


DOSES = {"off": 0.0, "a": 0.1, "b": 0.2, "c": 0.3, "d": 0.45}


@pytest.mark.parametrize("bend", [0.0, -1.0])
def test_a_balanced_table_by_hand(bend: float) -> None:
    frame = made(DOSES, 6, bend, np.random.default_rng(7))
    found = dose_response(frame)
    slope, error, ratio, p = by_hand(frame)
    assert found["slope"] == pytest.approx(slope)
    half = stats.t.ppf(0.975, 30 - 6 - 1) * error
    assert found["high"] - found["slope"] == pytest.approx(half)
    assert found["p_slope"] == pytest.approx(
        2 * (1 - stats.t.cdf(abs(slope) / error, 23)), abs=1e-9
    )
    assert found["lack_of_fit"] == pytest.approx(ratio)
    assert found["p_lack_of_fit"] == pytest.approx(p, abs=1e-9)
    assert (found["runs"], found["arms"]) == (30, 5)
    assert (found["p_lack_of_fit"] < 0.01) == (bend != 0)


def test_missing_runs_are_left_out_and_two_arms_have_no_lack_of_fit() -> None:
    frame = made({"off": 0.0, "a": 0.3}, 5, 0.0, np.random.default_rng(1))
    frame.loc[0, "outcome"] = math.nan
    found = dose_response(frame)
    assert found["runs"] == 9
    assert math.isnan(found["lack_of_fit"])


def test_equal_doses_and_doses_that_no_seed_compares_have_no_slope() -> None:
    frame = pd.DataFrame({"arm": ["a", "b"], "seed": [1, 1], "dose": [0.1, 0.1], "outcome": [1, 2]})
    apart = frame.assign(seed=[1, 2], dose=[0.1, 0.3])
    for runs in (frame, frame.head(0), apart):
        found = dose_response(runs)
        assert math.isnan(found["slope"])
        assert found["runs"] == len(runs)

"""Summaries of M2 against scipy and hand computation."""

import itertools

import m2_frames
import numpy as np
import pandas as pd
import pytest
from scipy import stats

from refblend.study.report.m2.levels import contrasts
from refblend.study.report.m2.runs import experiment_summary
from refblend.study.report.m2.study import M2Study

MISSING = {("cosine", 1), ("linear_terminal_w01", 1), ("gae_linear_mean", 1)}
MISSING |= {("gae_linear_mean", 2), ("gae_linear_mean", 3)}


@pytest.fixture(scope="module")
def study() -> M2Study:
    """The grid of scale cpu without A's 19 arms at five seeds; some runs failed."""
    kept = {name: spec for name, spec in m2_frames.specs().items() if name in "BG"}
    effects = {"linear_terminal": 0.05, "linear": -0.04, "linear_per_length": -0.04}
    return m2_frames.study("cpu", effects, MISSING, kept)


@pytest.fixture(scope="module")
def summary(study: M2Study) -> pd.DataFrame:
    return experiment_summary(study, "B", ["test_greedy", "loss_spikes", "weight_mean"])


def values_of(study: M2Study, arm: str, measure: str = "test/greedy") -> pd.Series:
    """Read from the metrics, past all code that is tested."""
    metrics = study.collected.metrics
    part = metrics[(metrics.arm == arm) & (metrics.metric == measure)]
    return part.set_index("seed")["value"].sort_index()


@pytest.mark.parametrize("arm", ["linear_per_length", "linear_terminal_w01", "linear_terminal"])
def test_means_and_differences(study: M2Study, summary: pd.DataFrame, arm: str) -> None:
    row = summary[(summary.arm == arm) & (summary.measure == "test_greedy")].iloc[0]
    values, base = values_of(study, arm), values_of(study, "off")
    assert (row.runs, row.n) == (3, len(values))
    assert row["mean"] == pytest.approx(np.mean(values))
    interval = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (row.low, row.high) == pytest.approx((interval.low, interval.high))
    assert row.boot_low >= values.min() - 1e-12
    assert row.boot_high <= values.max() + 1e-12

    pairs = base.loc[values.index]
    paired = stats.ttest_rel(values, pairs)
    assert row.pairs == len(values)
    assert row["diff"] == pytest.approx((values - pairs).mean())
    interval = paired.confidence_interval(0.95)
    assert (row.diff_low, row.diff_high) == pytest.approx((interval.low, interval.high))
    family = paired.confidence_interval(1 - 0.05 / 7)  # seven arms against off
    assert (row.diff_family_low, row.diff_family_high) == pytest.approx((family.low, family.high))
    assert row.interval_excludes_0 == (family.low > 0 or family.high < 0)

    wins = [(x > y) + 0.5 * (x == y) for x, y in itertools.product(values, base)]
    assert row.prob_improvement == pytest.approx(np.mean(wins))
    signs = itertools.product((1, -1), repeat=len(values))
    means = [abs(np.mean(np.array(s) * (values - pairs).to_numpy())) for s in signs]
    expected = np.mean(np.array(means) >= abs(row["diff"]) - 1e-12)
    assert row.p == pytest.approx(expected)
    assert row.smallest_p == 2.0 ** (1 - len(values))


def test_holm_over_the_arms_of_one_measure(summary: pd.DataFrame) -> None:
    rows = summary[(summary.measure == "test_greedy") & summary.p.notna()]
    p = sorted(rows.p)
    expected = [min(1.0, max((len(p) - j) * p[j] for j in range(i + 1))) for i in range(len(p))]
    assert sorted(rows.p_holm) == pytest.approx(expected)
    assert set(rows.verdict) == {"undecided"}  # by design with three seeds
    assert (rows.smallest_p_holm > 0.05).all()


def test_a_failed_run_is_noted_and_a_baseline_without_judge_is_no_comparison(
    summary: pd.DataFrame,
) -> None:
    row = summary[(summary.arm == "linear_terminal_w01") & (summary.measure == "test_greedy")]
    assert row.note.tolist() == ["1 of 3 runs without it"]
    weights = summary[summary.measure == "weight_mean"].set_index("arm")
    assert weights.loc["off", "note"] == "no run has this measure"
    assert weights.loc["linear_per_length", "note"] == "the baseline does not have it"
    assert weights.p.isna().all()


def test_lower_is_better_turns_the_improvement_only(study: M2Study) -> None:
    table = experiment_summary(study, "B", ["step_seconds"]).set_index("arm")
    slower = table.loc["linear_per_length"]
    assert slower["diff"] == pytest.approx(2.0)
    assert slower.prob_improvement == 0.0
    assert slower.note == "all differences equal: their interval says nothing"
    assert pd.isna(slower.interval_excludes_0)


def test_gae_arms_have_a_baseline_of_their_own(study: M2Study) -> None:
    table = experiment_summary(study, "G", ["test_greedy"]).set_index("arm")
    assert table.baseline.dropna().to_dict() == {
        "linear": "off",
        "linear_terminal": "off",
        "gae_off": "off",
        "gae_linear": "gae_off",
        "gae_linear_terminal": "gae_off",
        "gae_linear_mean": "gae_off",
    }
    difference = values_of(study, "gae_linear") - values_of(study, "gae_off")
    assert table.loc["gae_linear", "diff"] == pytest.approx(difference.mean())
    dead = table.loc["gae_linear_mean"]
    assert (dead.n, dead.pairs, dead.verdict, dead.p_holm) == (0, 0, "no pair", 1.0)
    assert dead.note == "no run has this measure"


def test_contrasts_pair_the_two_arms(study: M2Study) -> None:
    table = contrasts(study)
    assert set(table.experiment) == {"B", "G"}
    table = table[table.experiment == "G"]
    row = table.query("arm == 'linear_terminal' and measure == 'test_greedy'").iloc[0]
    difference = values_of(study, "linear_terminal") - values_of(study, "linear")
    assert row.against == "linear"
    assert row["diff"] == pytest.approx(difference.mean())
    family = stats.ttest_1samp(difference, 0).confidence_interval(1 - 0.05 / 5)
    assert (row.diff_family_low, row.diff_family_high) == pytest.approx((family.low, family.high))

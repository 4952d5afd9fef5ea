"""Tables of made runs against numbers that scipy, or a reader by hand, gets from the same runs."""

from dataclasses import replace

import m2_frames
import numpy as np
import pandas as pd
import pytest
from scipy import stats

from refblend.ppo.metrics import roc_auc
from refblend.study.design.measures import MEASURES
from refblend.study.report.build import figures_of
from refblend.study.report.readable import plus_minus, to_markdown
from refblend.study.report.study import Study
from refblend.study.report.summary import (
    best_per_metric,
    chosen_levels,
    experiment_summary,
    main_table,
)
from refblend.study.report.tables import run_correlations, stability_by_arm, tables_of
from refblend.study.runs.measures import auc_within
from refblend.study.stats.dose import dose_response

WEIGHT = "actor/ref_quality/weight"


def part_of(names: str, scale: str = "cpu", **options: object) -> Study:
    """A study of some experiments only."""
    chosen = {name: spec for name, spec in m2_frames.specs().items() if name in names}
    return m2_frames.study(scale, experiments=chosen, **options)


def with_metrics(study: Study, metrics: pd.DataFrame) -> Study:
    return replace(study, collected=study.collected._replace(metrics=metrics))


def greedy(study: Study, arm: str) -> pd.Series:
    """Test accuracy, read past all code that is tested."""
    metrics = study.collected.metrics
    return metrics[metrics.arm == arm].set_index("seed")["test/greedy"].dropna().sort_index()


def test_smoke_has_every_table_with_the_runs_that_failed() -> None:
    study = m2_frames.study("smoke", {"linear": -0.1}, {("cosine", 1)})
    tables = tables_of(study)
    whole = tables["per_seed"]
    assert len(whole) == len(study.collected.runs)
    assert set(MEASURES) <= set(whole)
    failed = whole[(whole.arm == "cosine") & (whole.seed == 1)].iloc[0]
    assert (failed.status, failed.reason, failed.experiments) == ("failed", "worker died", "A")
    assert pd.isna(failed.test_greedy)
    summary = tables["A_summary"]
    assert set(summary.arm) == set(study.arms("A"))  # arms_at leaves the others out
    row = summary[(summary.arm == "cosine") & (summary.measure == "test_greedy")].iloc[0]
    assert (row.runs, row.n, row.pairs) == (2, 1, 1)
    shown = main_table(study, "A", summary).set_index("arm")
    assert shown.loc["cosine", "n"] == "1/2"
    assert not tables["knee_pivot"].identifiable.any()
    assert set(tables["knee_pivot"].why_not) == {"2 levels with runs; 3 are needed"}


def test_summary_against_scipy() -> None:
    study = part_of("A", effects={"linear": 0.1})
    table = experiment_summary(study, "A").set_index(["measure", "arm"])
    row = table.loc[("test_greedy", "linear")]
    own, base = greedy(study, "linear"), greedy(study, "off")
    mean = stats.ttest_1samp(own, 0).confidence_interval()
    assert (row["mean"], row.low, row.high) == pytest.approx((own.mean(), mean.low, mean.high))
    paired = stats.ttest_rel(own, base)
    change = paired.confidence_interval()
    assert (row["diff"], row.diff_low, row.diff_high) == pytest.approx(
        ((own - base).mean(), change.low, change.high)
    )
    family = sum(arm != "off" for arm in study.arms("A"))
    wide = paired.confidence_interval(1 - 0.05 / family)
    assert (row.diff_family_low, row.diff_family_high) == pytest.approx((wide.low, wide.high))
    assert pd.isna(table.loc[("judge_auc", "linear"), "diff"])  # the baseline has no judge


def test_knee_and_pivot_of_stated_effects() -> None:
    effects = {"linear_terminal": 0.2, "linear_terminal_w02": 0.2, "linear_terminal_w04": 0.1}
    effects |= {"linear_terminal_t06": -0.1, "linear_terminal_t08": -0.1}
    effects |= {"linear_terminal_t12": 0.1}
    study = part_of("BC", effects=effects)
    table = chosen_levels(study).set_index(["rule", "measure"])
    knee = table.loc[("knee", "test_greedy")]
    assert knee.levels == "0.1, 0.2, 0.3, 0.4"
    # 0.3 and 0.2 differ by noise alone: the smaller one within one standard error is the knee
    gap = greedy(study, "linear_terminal") - greedy(study, "linear_terminal_w02")
    within = abs(gap.mean()) <= stats.sem(gap)
    assert knee.chosen == (0.2 if gap.mean() < 0 or within else 0.3)
    assert knee.identifiable
    assert 0.2 <= knee.low <= knee.chosen <= knee.high <= 0.3
    pivot = table.loc[("pivot", "test_greedy")]
    assert (pivot.chosen, pivot.sign_changes, pivot.identifiable) == (0.8, 1, True)
    assert ("knee", "test_sampled") in table.index  # the declared endpoint of its contrasts


def test_best_per_metric_names_what_it_cannot_tell_apart() -> None:
    study = part_of("B", effects={"linear_terminal": 0.3, "linear_per_length": -0.3})
    table = best_per_metric(study).set_index(["scope", "measure"])
    row = table.loc[("all", "test_greedy")]
    assert (row.best, row.n, row.arms) == ("linear_terminal", 3, 8)
    assert row["mean"] == pytest.approx(greedy(study, "linear_terminal").mean())
    assert row.share_best == 1.0
    spikes = table.loc[("all", "loss_spikes")]
    assert (spikes.best, spikes.tied, spikes.n_not_distinguishable) == ("off", 7, 7)
    assert "step_seconds" not in table.index.get_level_values("measure")


def test_correlations_against_scipy() -> None:
    study = part_of("B")
    metrics = study.collected.metrics.copy()
    rng = np.random.default_rng(0)
    noisy = (metrics.arm == "linear_per_length") & metrics[WEIGHT].notna()
    metrics.loc[noisy, WEIGHT] = rng.uniform(size=noisy.sum())
    flat = (metrics.arm == "linear_terminal") & metrics[WEIGHT].notna()
    metrics.loc[flat, WEIGHT] = 0.3
    runs = run_correlations(with_metrics(study, metrics)).set_index(["arm", "seed", "x", "y"])
    row = runs.loc[("linear_per_length", 2, "weight", "avg_entropy")]
    mine = metrics[(metrics.arm == "linear_per_length") & (metrics.seed == 2)]
    pair = mine.set_index("step")[[WEIGHT, "actor/ref_quality/avg_entropy"]].dropna()
    assert (row.points, row.rho) == (20, pytest.approx(stats.spearmanr(pair).statistic))
    changes = stats.spearmanr(pair.diff().dropna()).statistic
    assert row.rho_of_changes == pytest.approx(changes)
    constant = runs.loc[("linear_terminal", 2, "weight", "avg_entropy")]
    assert np.isnan(constant.rho)
    assert ("off", 2, "weight", "avg_entropy") not in runs.index


def test_the_dose_of_a_run_is_its_mean_weight_and_zero_without_a_judge() -> None:
    spec = m2_frames.specs()["B"].model_copy(update={"dose": True})
    study = m2_frames.study("cpu", experiments={"B": spec})
    row = tables_of(study)["B_dose"].set_index("measure").loc["test_greedy"]
    runs = study.of("B", study.metrics).groupby(["arm", "seed"])
    weights, accuracy = runs[WEIGHT].mean(), runs["test/greedy"].last()
    runs = pd.DataFrame({"dose": weights, "outcome": accuracy}).fillna({"dose": 0.0})
    expected = dose_response(runs.reset_index())
    assert row.slope == pytest.approx(expected["slope"])
    assert (row.runs, row.arms) == (len(accuracy), len(study.arms("B")))
    assert "B_dose" in figures_of(study, tables_of(study))["B"]


def test_a_sweep_without_its_arms_at_a_scale_has_no_figure() -> None:
    spec = m2_frames.specs()["B"].model_copy(update={"arms_at": {"cpu": ["off"]}})
    study = m2_frames.study("cpu", experiments={"B": spec})
    assert "B_sensitivity" not in figures_of(study, tables_of(study))["B"]


def test_stability_counts_runs_that_failed_and_collapse() -> None:
    study = part_of("B", missing={("linear_per_length", 1)})
    metrics = study.collected.metrics.copy()
    low = (metrics.arm == "linear_per_length") & (metrics.seed == 2) & (metrics.step > 5)
    metrics.loc[low, "actor/ref_quality/avg_entropy"] = 0.01
    table = stability_by_arm(with_metrics(study, metrics)).set_index("arm")
    assert list(table.loc["linear_per_length", ["runs", "finished"]]) == [3, 2]
    assert table.loc["linear_per_length", "collapsed_runs"] == 1
    assert table.loc["off", "collapsed_runs"] == 0
    assert table.loc["linear_terminal", "judge_invalid"] == 60


def test_auc_within_a_prompt_forgets_which_prompts_are_hard() -> None:
    """The judge scores the easy prompt higher, and tells right from wrong in neither."""
    easy = {"acc": [1.0, 1.0, 0.0, 1.0], "judge_score": [0.9, 0.8, 0.9, 0.8]}
    hard = {"acc": [0.0, 1.0, 0.0, 0.0], "judge_score": [0.1, 0.1, 0.2, 0.0]}
    all_wrong = {"acc": [0.0] * 4, "judge_score": [0.0, 0.3, 0.3, 0.3]}
    frame = pd.concat(map(pd.DataFrame, (easy, hard, all_wrong)), ignore_index=True)
    frame = frame.assign(step=10, judge_valid=True).astype({"judge_valid": "boolean"})
    # Of three pairs of the easy prompt 0.5 are in order, of three of the hard one 1.5.
    assert auc_within(frame, 4) == pytest.approx((0.5 + 1.5) / 6)
    assert roc_auc(frame.judge_score.tolist(), frame.acc.tolist()) > 0.7
    frame.loc[1, "judge_valid"] = False
    assert auc_within(frame, 4) == pytest.approx((0.5 + 1.5) / 5)
    assert np.isnan(auc_within(frame.tail(4), 4))


def test_markdown_cells_do_not_break_the_table() -> None:
    columns = {"a_name": ["x|y", "two\nlines"], "value": [0.123456, np.nan], "empty": [None, None]}
    frame = pd.DataFrame(columns | {"flag": [True, False]})
    lines = to_markdown(frame).splitlines()
    assert lines[0] == "|a name|value|flag|"
    assert lines[2] == "|x\\|y|0.1235|yes|"
    assert lines[3] == "|two lines|–|no|"
    assert plus_minus(0.5, 0.4, 0.6, 5, signed=True) == "+0.500 ±0.100"
    assert plus_minus(np.nan, np.nan, np.nan, 0) == "–"

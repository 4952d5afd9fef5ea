"""M2's tables of levels, placement, best arms, costs, stability and correlations."""

from dataclasses import replace
from pathlib import Path

import m2_frames
import numpy as np
import pandas as pd
import pytest
from scipy import stats

from refblend.errors import StudyError
from refblend.ppo.metrics import roc_auc
from refblend.study.design.measures import MEASURES
from refblend.study.report.m2.costs import cost_table, hidden_judge_time, scoring_table
from refblend.study.report.m2.exploratory import doses
from refblend.study.report.m2.levels import (
    best_per_metric,
    choice_table,
    knee_and_pivot,
    level_means,
)
from refblend.study.report.m2.responses import auc_within, breakdown, length_controlled, pass_at_n
from refblend.study.report.m2.runs import per_seed, stability_by_arm
from refblend.study.report.m2.starts import starts_of
from refblend.study.report.m2.study import M2Study
from refblend.study.runs.collect import RESPONSE_COLUMNS, Collected
from refblend.study.stats.comparisons import best_configuration
from refblend.study.stats.thresholds import Knee, Pivot, find_knee, find_pivot, not_identifiable


def part_of(names: str, scale: str = "cpu", **options: object) -> M2Study:
    """A study of some experiments only."""
    chosen = {name: spec for name, spec in m2_frames.specs().items() if name in names}
    return m2_frames.study(scale, experiments=chosen, **options)


def with_metrics(study: M2Study, metrics: pd.DataFrame) -> M2Study:
    return replace(study, collected=replace(study.collected, metrics=metrics))


def greedy(study: M2Study, arm: str) -> pd.Series:
    """Test accuracy, read past all code that is tested."""
    metrics = study.collected.metrics
    part = metrics[(metrics.arm == arm) & (metrics.metric == "test/greedy")]
    return part.set_index("seed")["value"].sort_index()


def test_smoke_has_every_table_with_the_runs_that_failed() -> None:
    study = m2_frames.study("smoke", {"linear": -0.1}, {("cosine", 1)})
    tables = dict(m2_frames.tables_of(study))
    assert len(tables) > 25
    whole = tables["per_seed"]
    assert len(whole) == len(study.collected.runs)
    assert set(MEASURES) <= set(whole)
    failed = whole[(whole.arm == "cosine") & (whole.seed == 1)].iloc[0]
    assert (failed.status, failed.reason, failed.experiments) == ("failed", "worker died", "A")
    assert pd.isna(failed.test_greedy)
    shown = tables["A_main"].set_index("arm")
    assert shown.loc["cosine", "n"] == "1 of 2"
    assert "one pair: no interval of the difference" in shown.loc["cosine", "note"]
    assert set(tables["A_summary"].arm) == set(study.arms("A"))  # arms_at leaves the others out
    levels = tables["knee_pivot"]
    assert not levels.identifiable.any()
    assert set(levels.why_not) == {"2 levels with runs; 3 are needed"}
    for name, frame in tables.items():
        if name.endswith("_main"):
            assert not frame.isin([np.nan]).to_numpy().any(), name


def test_nothing_ran() -> None:
    names = m2_frames.specs()
    runs = {(arm, seed) for spec in names.values() for arm in spec.arms for seed in range(1, 6)}
    tables = m2_frames.tables_of(m2_frames.study("smoke", missing=runs))
    assert tables["A_summary"].empty
    assert set(tables["per_seed"].status) == {"failed"}
    assert tables["best_per_metric"].empty
    assert set(tables["answers"]["best arm"]) == {"–"}


def test_knee_and_pivot_of_stated_effects() -> None:
    effects = {"linear_terminal": 0.2, "linear_terminal_w02": 0.2, "linear_terminal_w04": 0.1}
    effects |= {"linear_terminal_t06": -0.1, "linear_terminal_t08": -0.1}
    effects |= {"linear_terminal_t12": 0.1}
    study = part_of("BC", effects=effects)
    table = knee_and_pivot(study).set_index(["rule", "measure"])
    knee = table.loc[("knee", "test_greedy")]
    assert knee.levels == "0.1, 0.2, 0.3, 0.4"
    # 0.3 and 0.2 differ by noise alone: the smaller one within one standard error is the knee
    gap = greedy(study, "linear_terminal") - greedy(study, "linear_terminal_w02")
    best_is_02 = gap.mean() < 0
    within = abs(gap.mean()) <= stats.sem(gap)
    assert knee.chosen == (0.2 if best_is_02 or within else 0.3)
    assert knee.identifiable
    assert 0.2 <= knee.low <= knee.chosen <= knee.high <= 0.3
    pivot = table.loc[("pivot", "test_greedy")]
    assert (pivot.chosen, pivot.sign_changes, pivot.identifiable) == (0.8, 1, True)
    means = level_means(study).set_index(["measure", "arm"])
    row = means.loc[("test_greedy", "linear_terminal_t06")]
    difference = greedy(study, "linear_terminal_t06") - greedy(study, "off")
    interval = stats.ttest_1samp(difference, 0).confidence_interval()
    assert row.level == 0.6
    assert (row["diff"], row.diff_low, row.diff_high) == pytest.approx(
        (difference.mean(), interval.low, interval.high)
    )


def test_interval_of_a_choice_and_when_it_is_not_identifiable() -> None:
    levels = [1.0, 2.0, 3.0, 4.0]
    shares = {2.0: 0.9, 1.0: 0.06, 3.0: 0.04}
    knee = Knee(2.0, 3, shares, (), 2.0)
    assert knee.interval() == (1.0, 3.0)
    assert knee.interval(0.9) == (1.0, 2.0)  # tails of 5 %: 6 % lie at 1, only 4 % above 2
    assert not not_identifiable(knee, levels)
    assert "whole range" in not_identifiable(Knee(2.0, 3, shares, (4.0,), 2.0), levels)
    assert "2 levels" in not_identifiable(Knee(2.0, 3, shares, (3.0, 4.0), 2.0), levels)
    assert "1 seeds" in not_identifiable(Knee(None, 1, {}, (), 2.0), levels)
    unsure = Pivot(2.0, 3, {2.0: 0.8, None: 0.2}, (), 1)
    assert unsure.interval() is None
    assert not_identifiable(unsure, levels) == "20% of the resamples choose no level"
    assert "changes its sign 2 times" in not_identifiable(Pivot(2.0, 3, {2.0: 1.0}, (), 2), levels)
    assert "does not change" in not_identifiable(Pivot(None, 3, {None: 1.0}, (), 0), levels)


def test_placement_rule_says_under_which_placement_the_others_ran() -> None:
    effects = {"linear_terminal": 0.3, "gae_linear_mean": 0.3}
    table = choice_table(part_of("GH", effects=effects), "G")
    grpo = table[table.estimator == "grpo"].set_index("placement")
    assert grpo.index[grpo.best].tolist() == ["terminal"]
    assert grpo.swept.to_dict() == {"per_token": False, "terminal": True}
    assert grpo.distinguishable.fillna(False).to_dict() == {
        "per_token": True,
        "terminal": False,
    }
    gae = table[table.estimator == "gae"].set_index("placement")
    assert gae.index[gae.best].tolist() == ["per_token_mean"]


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


def test_an_arm_with_fewer_seeds_than_its_experiment_is_compared_but_never_the_best() -> None:
    own = {"cpu": {"linear_terminal_w04": [1, 2]}}
    spec = m2_frames.specs()["B"].model_copy(update={"arm_seeds": own})
    effects = {"linear_terminal_w04": 0.4, "linear_terminal_w02": 0.2}
    tables = m2_frames.tables_of(m2_frames.study("cpu", effects, experiments={"B": spec}))
    shown = tables["B_main"].set_index("arm")
    assert shown.loc[["linear_terminal_w04", "off"], "n"].to_list() == ["2 of 2", "3 of 3"]
    assert set(shown.note) == {""}
    assert not tables["contrasts"].note.str.contains("runs without it").any()
    best = tables["best_per_metric"].set_index(["scope", "measure"]).loc[("all", "test_greedy")]
    assert (best.best, best.n) == ("linear_terminal_w02", 3)
    answer = tables["answers"].set_index("experiment").loc["B"]
    assert answer["best arm"] == "linear_terminal_w02"


def test_hidden_judge_time_by_hand() -> None:
    study = part_of("F")
    metrics = study.collected.metrics.copy()
    faster = (metrics.arm == "shared_overlapped") & (metrics.metric == "perf/time_per_step")
    metrics.loc[faster, "value"] -= 1.0
    study = with_metrics(study, metrics)
    table = hidden_judge_time(study, "F").set_index(["pool", "seed"])
    for seed in (1, 2, 3):
        judge = 2.0 + 0.01 * seed
        assert table.loc[("global_pool", seed), "hidden"] == pytest.approx(1.0 / judge)
        assert table.loc[("judge_pool", seed), "hidden"] == pytest.approx(0.0)
    costs = cost_table(study, "F")
    row = costs[(costs.arm == "shared_overlapped") & (costs.measure == "step_seconds")].iloc[0]
    assert (row.pool, row.overlap) == ("global_pool", True)
    assert row["diff"] == pytest.approx(-1.0)


def test_costs_leave_the_first_step_out_and_name_the_lengths() -> None:
    table = cost_table(part_of("E"), "E").set_index(["measure", "arm"])
    row = table.loc[("step_seconds", "len320_ctx1024")]
    assert (row.length, row.max_model_len) == (320, 1024)
    assert row["mean"] == pytest.approx(6.2)  # 10 s more in every first step
    assert table.loc[("memory_gb", "len256_ctx2048"), "mean"] == pytest.approx(4.04)


def test_correlations_against_scipy() -> None:
    study = part_of("B")
    metrics = study.collected.metrics.copy()
    rng = np.random.default_rng(0)
    name = "actor/ref_quality/weight"
    noisy = (metrics.arm == "linear_per_length") & (metrics.metric == name)
    metrics.loc[noisy, "value"] = rng.uniform(size=noisy.sum())
    flat = (metrics.arm == "linear_terminal") & (metrics.metric == name)
    metrics.loc[flat, "value"] = 0.3
    study = with_metrics(study, metrics)
    tables = m2_frames.tables_of(study)
    runs = tables["correlations_per_seed"]
    row = runs[
        (runs.arm == "linear_per_length") & (runs.seed == 2) & (runs.y == "avg_entropy")
    ].iloc[0]
    mine = metrics[(metrics.arm == "linear_per_length") & (metrics.seed == 2)]
    by_step = mine.pivot(index="step", columns="metric", values="value").dropna(subset=name)
    expected = stats.spearmanr(by_step[name], by_step["actor/ref_quality/avg_entropy"]).statistic
    assert (row.points, row.rho) == (20, pytest.approx(expected))

    table = tables["correlations"].set_index(["arm", "x", "y"])
    rhos = runs[
        (runs.arm == "linear_per_length") & (runs.x == "weight") & (runs.y == "avg_entropy")
    ].rho
    found = table.loc[("linear_per_length", "weight", "avg_entropy")]
    interval = stats.ttest_1samp(rhos, 0).confidence_interval()
    assert found["mean"] == pytest.approx(rhos.mean())
    assert found.low == pytest.approx(max(-1, interval.low))
    constant = table.loc[("linear_terminal", "weight", "avg_entropy")]
    assert (constant.n, constant.note) == (0, "weight is constant")
    assert ("off", "weight", "avg_entropy") not in table.index


def test_stability_counts_runs_that_failed_and_collapse() -> None:
    study = part_of("B", missing={("linear_per_length", 1)})
    metrics = study.collected.metrics.copy()
    low = (metrics.arm == "linear_per_length") & (metrics.metric == "actor/ref_quality/avg_entropy")
    metrics.loc[low & (metrics.seed == 2) & (metrics.step > 5), "value"] = 0.01
    table = stability_by_arm(with_metrics(study, metrics)).set_index("arm")
    assert list(table.loc["linear_per_length", ["runs", "finished"]]) == [3, 2]
    assert table.loc["linear_per_length", "collapsed_runs"] == 1
    assert table.loc["off", "collapsed_runs"] == 0
    assert table.loc["linear_terminal", "judge_invalid"] == 60


def test_measures_of_a_run_are_in_its_row() -> None:
    study = part_of("B")
    table = per_seed(study).set_index(["arm", "seed"])
    assert table.loc[("linear_per_length", 2), "test_greedy"] == pytest.approx(
        greedy(study, "linear_per_length")[2]
    )
    assert table.loc[("off", 1)].status == "finished"


def test_scoring_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    study = part_of("B")
    assert scoring_table(study).empty
    (tmp_path / "tables").mkdir()
    with pytest.raises(StudyError, match=r"robustness\.csv"):
        scoring_table(replace(study, scoring=tmp_path))
    (tmp_path / "tables" / "robustness.csv").write_text("experiment,arm\nD1,few_shot\n")
    with pytest.raises(StudyError, match="snakemake scoring"):
        scoring_table(replace(study, scoring=tmp_path))


def test_levels_without_any_run_choose_nothing() -> None:
    empty = pd.DataFrame(np.nan, index=[1, 2, 3], columns=[0.1, 0.2, 0.3])
    knee = find_knee(empty, np.random.default_rng(0))
    assert (knee.level, knee.best, knee.n) == (None, None, 0)
    pivot = find_pivot(empty, pd.Series(0.0, index=[1, 2, 3]), np.random.default_rng(0))
    assert (pivot.level, pivot.n) == (None, 0)
    assert best_configuration(empty, np.random.default_rng(0)).arm is None


def test_accuracy_is_taken_apart_by_tries_and_length() -> None:
    answers = pd.DataFrame({"arm": "a", "seed": 1, "step": 5, "acc": [0, 1, 0, 0, 1, 1]})
    assert pass_at_n(answers, 2) == pytest.approx(2 / 3)
    assert pass_at_n(answers, 3) == 1.0
    assert np.isnan(pass_at_n(answers.head(0), 2))
    baseline = pd.DataFrame({"acc": [1, 1, 0, 0], "length": [1.0, 2.0, 8.0, 9.0]})
    longer = pd.DataFrame({"acc": [1, 0, 0, 1], "length": [1.0, 8.0, 8.0, 9.0]})
    # Bins of the quartiles 1.75, 5 and 8.25: a quarter of the baseline in each; none of 2 tokens.
    assert length_controlled(longer, baseline) == pytest.approx((1 + 0 + 1) / 3)
    assert length_controlled(baseline, baseline) == 0.5


def test_difficulty_comes_from_the_test_set() -> None:
    table = breakdown(part_of("B")).set_index("arm")
    assert table.loc["off", "1 step"] > table.loc["off", "2 steps"] > table.loc["off", "3 steps"]
    assert table.loc["off", "truncated"] == pytest.approx(0.02)
    assert "warm_start" not in table


def with_starts(study: M2Study) -> M2Study:
    """The same study, but seed 3 of every arm began from another actor, and answers worse."""
    runs = study.collected.runs.copy()
    runs["models"] = ["actor bbbb" if seed == 3 else "actor aaaa; judge_x cc" for seed in runs.seed]
    metrics = study.collected.metrics.copy()
    worse = (metrics.seed == 3) & metrics.metric.str.startswith("test/greedy_steps")
    metrics.loc[worse, "value"] -= 0.2
    rows = [
        {"arm": arm, "seed": seed, "step": 20, "acc": acc, "length": float(length)}
        for arm, gain in (("off", 0), ("linear_terminal", 1))
        for seed in (1, 2, 3)
        for length in range(8)
        for acc in [float(length < (2 if seed == 3 else 5) + gain)]
    ]
    frame = pd.DataFrame(rows).reindex(columns=list(RESPONSE_COLUMNS)).astype(RESPONSE_COLUMNS)
    return replace(study, collected=Collected(runs, metrics, frame))


def test_warm_starts_are_rows_of_their_own_each_against_its_own_baseline() -> None:
    study = with_starts(part_of("B"))
    assert study.starts["off"] == {"aaaa": [1, 2], "bbbb": [3]}
    table = breakdown(study).set_index(["arm", "warm_start"])
    assert list(table.loc["off"].index) == ["aaaa", "bbbb"]
    assert table.loc["off", "runs"].to_list() == [2, 1]
    steps = table.loc["off", "1 step"]
    assert steps["aaaa"] - steps["bbbb"] == pytest.approx(0.2, abs=0.06)
    # 5 of 8 against 6 of 8, and 2 of 8 against 3 of 8; all runs together would give 0.5 and more.
    controlled = table.loc["off", "length-controlled"]
    assert controlled.to_list() == pytest.approx([5 / 8, 2 / 8])
    assert table.loc["linear_terminal", "difference"].to_list() == pytest.approx([1 / 8, 1 / 8])
    tables = m2_frames.tables_of(study)
    for name in ("stability", "correlations"):
        assert set(tables[name].warm_start) == {"aaaa", "bbbb"}
    stability = tables["stability"].set_index(["arm", "warm_start"])
    assert stability.loc["off", "runs"].to_list() == [2, 1]
    drawn = study.curves
    assert sorted(drawn.runs[drawn.runs.arm.str.startswith("off")].arm) == [
        "off (aaaa)", "off (aaaa)", "off (bbbb)",
    ]  # fmt: skip
    assert set(drawn.metrics.arm) == set(drawn.runs.arm)


def test_a_run_without_a_record_belongs_to_the_only_warm_start_that_is_known() -> None:
    runs = pd.DataFrame({"arm": ["off", "off", "linear"], "seed": [1, 2, 1]})
    arms = part_of("A").resolved
    known = runs.assign(models=["actor aaaa", None, None])
    assert starts_of(known, arms) == {"off": {"aaaa": [1, 2]}, "linear": {"aaaa": [1]}}
    assert starts_of(runs.assign(models=None), arms)["off"] == {"unknown": [1, 2]}
    mixed = starts_of(runs.assign(models=["actor aaaa", "actor bbbb", None]), arms)
    assert mixed == {"off": {"aaaa": [1], "bbbb": [2]}, "linear": {"unknown": [1]}}


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


def test_a_score_on_every_token_is_a_dose_of_as_many_tokens() -> None:
    study = part_of("BG")
    found = doses(study, m2_frames.tables_of(study), "G")
    assert found is not None
    first = found["arms"][0]
    assert first["arm"] == "linear"
    assert (first["first"], first["last"]) == pytest.approx((30.5, 40.0))
    lengths = {row["arm"]: row for row in found["lengths"]}
    assert lengths["linear"]["diff"] == pytest.approx(20.0)
    assert lengths["linear"]["cut"] == pytest.approx(0.02)
    assert found["equal"] == ["B"]
    assert doses(study, m2_frames.tables_of(study), "B") is None


def test_speed_is_told_where_a_contrast_asks_for_it_and_for_each_warm_start() -> None:
    study = with_starts(part_of("JB"))
    tables = m2_frames.tables_of(study)
    assert "B_speed" not in tables
    table = tables["J_speed"]
    own = table[(table.arm == "decay_terminal") & (table.measure == "val_auc_third")]
    assert own[["reference", "warm_start", "n"]].to_numpy().tolist() == [
        ["off", "aaaa", 2],
        ["decay_shuffled", "aaaa", 2],
        ["off", "bbbb", 1],
        ["decay_shuffled", "bbbb", 1],
    ]
    assert list(tables["J_speed_main"].columns[:3]) == ["arm − reference", "warm start", "n"]
    assert "verdict" not in tables["J_speed_main"]
    assert "val_auc_third" not in set(tables["verdicts"].endpoint)


def test_readers_see_no_columns_of_zeros_and_no_correlations_by_construction() -> None:
    study = part_of("B")
    tables = m2_frames.tables_of(study)
    assert not {"oom", "collapsed_runs"} & set(tables["stability_main"])
    assert {"judge_invalid", "loss_spikes"} <= set(tables["stability_main"])
    assert tables["correlations_main"].empty  # every weight is a function of the entropy
    metrics = study.collected.metrics.copy()
    rows = (metrics.arm == "linear_terminal") & metrics.metric.str.endswith("/weight")
    metrics.loc[rows, "value"] = np.random.default_rng(0).uniform(size=rows.sum())
    shown = m2_frames.tables_of(with_metrics(study, metrics))["correlations_main"]
    assert shown.arm.to_list() == ["linear_terminal"]
    assert set(tables["B_main"]) & {"verdict", "interval excludes 0", "against"} == set()

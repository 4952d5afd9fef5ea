"""Verdicts on declared contrasts of made runs, in memory and from an archive."""

from dataclasses import replace
from pathlib import Path

import m2_frames
import pandas as pd
import pytest
from scipy import stats

from refblend.errors import StudyError
from refblend.study.design.grid import build_grid, write_grid
from refblend.study.design.spec import ContrastSpec, ExperimentSpec
from refblend.study.report.build import Archive, Place
from refblend.study.report.study import Study, make_study
from refblend.study.report.verdicts import VERDICT_COLUMNS, headline, verdict_lines, verdicts
from refblend.study.runs.archive import write_archive
from refblend.study.runs.models import refuse_mixed_models

SEEDS = list(range(1, 11))


@pytest.fixture(scope="module")
def spec() -> ExperimentSpec:
    """A's arms with stated contrasts and ten seeds."""
    declared = m2_frames.specs()["A"]
    contrasts = [
        ContrastSpec(name="gains", pairs={"linear": "off"}, primary=True),
        ContrastSpec(name="same", pairs={"cosine": "off"}, primary=True),
        ContrastSpec(name="slower", pairs={"exp": "off"}, endpoint="step_seconds", margin=1.0),
    ]
    return declared.model_copy(update={"contrasts": contrasts, "seeds": {"cpu": SEEDS}})


@pytest.fixture(scope="module")
def study(spec: ExperimentSpec) -> Study:
    effects = {"linear": 0.1, "exp": -0.1}
    return m2_frames.study("cpu", effects, experiments={"A": spec})


def test_each_contrast_gets_its_verdict(study, spec) -> None:
    table = verdicts(study.values, {"A": spec}, "cpu").set_index("contrast")
    assert list(table.reset_index()[[*VERDICT_COLUMNS]].columns) == list(VERDICT_COLUMNS)
    assert dict(table.verdict) == {"gains": "better", "same": "equivalent", "slower": "worse"}
    assert dict(table.n) == {"gains": 10, "same": 10, "slower": 10}
    assert dict(table.primary) == {"gains": True, "same": True, "slower": False}
    assert table.loc["slower", "estimate"] > 1  # more time is worse
    assert table.loc["slower", ["endpoint", "margin"]].tolist() == ["step_seconds", 1.0]


def test_what_is_added_later_moves_no_earlier_verdict(study, spec) -> None:
    """Not its adjustment, and not the choice between pairs and independent arms."""
    added = [
        ContrastSpec(name=f"later {arm}", pairs={arm: "off"}, added_at={"cpu": 1})
        for arm in ("linear", "cosine", "exp")
    ]
    longer = spec.model_copy(update={"contrasts": [*spec.contrasts, *added]})
    before, after = (verdicts(study.values, {"A": each}, "cpu") for each in (spec, longer))
    pd.testing.assert_frame_equal(after[after.added == 0].reset_index(drop=True), before)
    later = after[after.added > 0]
    assert later.contrast.tolist() == [each.name for each in added]
    assert not later.primary.any()
    assert later.p_adjusted.min() == pytest.approx(3 * later.p.min())
    elsewhere = longer.model_copy(update={"seeds": {"gpu": SEEDS}})
    assert not verdicts(study.values, {"A": elsewhere}, "gpu").added.any()


def test_what_is_added_later_cannot_be_primary() -> None:
    with pytest.raises(ValueError, match="late was added at cpu and cannot be primary"):
        ContrastSpec(name="late", pairs={"linear": "off"}, primary=True, added_at={"cpu": 1})


def test_numbers_are_those_of_scipy(study, spec) -> None:
    row = verdicts(study.values, {"A": spec}, "cpu").set_index("contrast").loc["gains"]
    greedy = study.collected.metrics.query("metric == 'test/greedy'").pivot(
        index="seed", columns="arm", values="value"
    )
    difference = greedy["linear"] - greedy["off"]
    assert row.estimate == pytest.approx(difference.mean())
    if row.paired:
        interval = stats.ttest_rel(greedy["linear"], greedy["off"]).confidence_interval()
    else:
        test = stats.ttest_ind(greedy["linear"], greedy["off"], equal_var=False)
        interval = test.confidence_interval()
    assert (row.low, row.high) == pytest.approx((interval.low, interval.high))
    assert row.p_adjusted == pytest.approx(2 * row.p)  # the smaller of two that differ


def test_failed_runs_leave_a_row(spec) -> None:
    missing = [("linear", seed) for seed in SEEDS]
    made = m2_frames.study("cpu", missing=missing, experiments={"A": spec})
    row = verdicts(made.values, {"A": spec}, "cpu").set_index("contrast").loc["gains"]
    assert (row.n, row.p, row.verdict) == (0, 1.0, "undecided")
    assert pd.isna(row.estimate)


def test_the_archive_gives_the_same(tmp_path: Path) -> None:
    study = m2_frames.study("smoke", {"linear_terminal": 0.1})
    names = list(study.experiments)
    write_grid(build_grid(names, "smoke", m2_frames.PARAMS), tmp_path / "grid.tsv")
    write_archive(study.collected, tmp_path)
    place = Place("smoke", tmp_path, tmp_path, m2_frames.PARAMS)
    found = pd.read_csv(Archive.read(place).write_verdicts())
    expected = verdicts(study.values, study.experiments, "smoke")
    assert len(found) > 0
    pd.testing.assert_frame_equal(
        found.astype({"seeds_needed": "Int64"}), expected, check_dtype=False, rtol=1e-5
    )


def test_a_contrast_of_runs_from_different_models_is_refused(study, spec) -> None:
    runs = study.collected.runs
    own = "actor 11111111; judge_medium 22222222"
    refuse_mixed_models(runs, {"X": spec}, "cpu")  # nothing is known of their models
    refuse_mixed_models(runs.assign(models=own), {"X": spec}, "cpu")
    (pair, *_) = spec.contrasts[0].pairs.items()
    row = (runs.arm == pair[1]) & (runs.seed == runs.seed.min())
    other = runs.assign(models=own).astype({"models": "str"})
    other.loc[row, "models"] = "actor 33333333"
    expected = f"X: {pair[0]} − {pair[1]} compares runs of different models, actor 33333333 "
    with pytest.raises(StudyError, match=expected):
        refuse_mixed_models(other, {"X": spec}, "cpu")


def test_no_study_compares_runs_of_different_models() -> None:
    specs = {"A": m2_frames.specs()["A"]}
    frames = m2_frames.collected([(arm, s) for arm in specs["A"].arms_of("smoke") for s in (1, 2)])
    alike = replace(frames, runs=frames.runs.assign(models="actor 11111111"))
    assert make_study(alike, specs, "smoke", m2_frames.PARAMS)
    own = frames.runs.arm.map(lambda arm: "actor 22222222" if arm == "off" else "actor 11111111")
    mixed = replace(frames, runs=frames.runs.assign(models=own))
    with pytest.raises(StudyError, match=r"A: .* − off compares runs of different models, actor"):
        make_study(mixed, specs, "smoke", m2_frames.PARAMS)


def test_readers_get_both_accuracies_beside_what_decides(study, spec) -> None:
    table = verdicts(study.values, {"A": spec}, "cpu")
    (first, _) = headline(study, table).to_dict("records")
    assert (first["treated − reference"], first["verdict"]) == ("`linear` − `off`", "**better**")
    wide = study.wide("A", "test_sampled")
    change = (wide["linear"] - wide["off"]).mean()
    assert first["sampled test acc."].startswith(f"{change:+.3f} ±")
    (slower,) = verdict_lines(table[~table.primary])
    assert slower.startswith("**worse**: `exp` − `off` +")

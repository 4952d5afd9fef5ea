"""Verdicts on declared contrasts of made runs, in memory and from an archive."""

import m2_frames
import pandas as pd
import pytest

from refblend.errors import StudyError
from refblend.study.design.spec import ContrastSpec, ExperimentSpec
from refblend.study.report.study import Study, make_study
from refblend.study.report.verdicts import VERDICT_COLUMNS, verdicts

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


def test_failed_runs_leave_a_row(spec) -> None:
    missing = [("linear", seed) for seed in SEEDS]
    made = m2_frames.study("cpu", missing=missing, experiments={"A": spec})
    row = verdicts(made.values, {"A": spec}, "cpu").set_index("contrast").loc["gains"]
    assert (row.n, row.p, row.verdict) == (0, 1.0, "undecided")
    assert pd.isna(row.estimate)


def test_no_study_compares_runs_of_different_models() -> None:
    specs = {"A": m2_frames.specs()["A"]}
    frames = m2_frames.collected([(arm, s) for arm in specs["A"].arms_of("smoke") for s in (1, 2)])
    alike = frames._replace(runs=frames.runs.assign(models="actor 11111111"))
    assert make_study(alike, specs, "smoke", m2_frames.PARAMS)
    own = frames.runs.arm.map(lambda arm: "actor 22222222" if arm == "off" else "actor 11111111")
    mixed = frames._replace(runs=frames.runs.assign(models=own))
    with pytest.raises(StudyError, match=r"A: .* − off compares runs of different models, actor"):
        make_study(mixed, specs, "smoke", m2_frames.PARAMS)

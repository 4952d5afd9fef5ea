import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from typer.testing import CliRunner

from refblend.cli.study import app
from refblend.errors import RefblendError, StudyError
from refblend.study.recommend.candidates import load_confirmation
from refblend.study.recommend.guards import TOLERATED, guard, guarded_interval, parse_tolerated
from refblend.study.recommend.overlay import challenger_path
from refblend.study.runs.collect import (
    METRIC_COLUMNS,
    RESPONSE_COLUMNS,
    RUN_COLUMNS,
    Collected,
    write_collected,
)

PARAMS = Path(__file__).parents[3] / "params"
ROLES = load_confirmation("gpu", PARAMS)
ARMS = ("off", "linear", "challenger")
BLENDS = "algorithm: {ref_quality_score: {scoring: {model_path: models/cpu/judge}}}\n"
NO_BLEND = "algorithm: {ref_quality_score: {enable: false}}\n"
INCIDENTS = (
    "overlength", "oom", "nonfinite", "judge_error", "judge_invalid", "reward_error", "drift",
)  # fmt: skip


def healthy(
    seeds: tuple[int, ...] = (101, 102),
    problems: int | None = 64,
    arms: tuple[str, ...] = ARMS,
) -> Collected:
    """Runs of M3 without incidents; all arms are equally good."""
    runs, metrics = [], []
    for arm in arms:
        for seed in seeds:
            runs.append({"arm": arm, "seed": seed, "status": "finished", "reason": ""})
            values = {f"incidents/{kind}": 0.0 for kind in INCIDENTS}
            values |= {"test/greedy": 0.5 + (seed % 2) / 64}
            values["val-core/refblend/arithmetic/acc/mean@1"] = 0.5
            if problems:
                values["test/problems"] = problems
            if not arm.endswith("off"):
                values["actor/ref_quality/valid_rate"] = 0.99
            metrics += [
                {"arm": arm, "seed": seed, "step": 4, "metric": name, "value": value}
                for name, value in values.items()
            ]
    return Collected(
        pd.DataFrame(runs).reindex(columns=list(RUN_COLUMNS)).astype(RUN_COLUMNS),
        pd.DataFrame(metrics).astype(METRIC_COLUMNS),
        pd.DataFrame(columns=list(RESPONSE_COLUMNS)).astype(RESPONSE_COLUMNS),
    )


@pytest.fixture
def overlay(tmp_path: Path) -> Path:
    path = tmp_path / "recommended.yaml"
    for file in (path, challenger_path(path)):
        file.write_text(BLENDS)
    return path


def differences(record: dict[str, Any]) -> dict[str, float]:
    (only,) = record["challengers"]
    return only["difference"]


def put(runs: Collected, arm: str, seed: int, metric: str, value: float | None) -> None:
    """Set a metric of a run; null removes it."""
    frame = runs.metrics
    rows = frame.arm.eq(arm) & frame.seed.eq(seed) & frame.metric.eq(metric)
    assert rows.any()
    if value is None:
        frame.drop(index=frame[rows].index, inplace=True)
    else:
        frame.loc[rows, "value"] = value


def test_healthy_runs_pass(overlay: Path) -> None:
    record = guard(healthy(), overlay, ROLES)
    assert record["runs"] == 6
    assert record["incidents"] == dict.fromkeys(INCIDENTS, 0)
    assert record["judge_invalid_rate"] == pytest.approx(0.01)
    assert (record["measure"], differences(record)["n"]) == ("test_greedy", 2)
    assert differences(record)["estimate"] == 0


@pytest.mark.parametrize("kind", ["overlength", "oom", "nonfinite", "judge_error", "reward_error"])
@pytest.mark.parametrize("arm", ["off", "challenger"])
def test_an_incident_fails_unless_it_is_tolerated(kind: str, arm: str, overlay: Path) -> None:
    runs = healthy()
    put(runs, arm, 102, f"incidents/{kind}", 2)
    with pytest.raises(StudyError, match=rf"2 {kind} incidents \(tolerated: 0\)"):
        guard(runs, overlay, ROLES)
    assert guard(runs, overlay, ROLES, parse_tolerated([f"{kind}=2"]))["incidents"][kind] == 2
    with pytest.raises(StudyError, match=r"tolerated: 1"):
        guard(runs, overlay, ROLES, parse_tolerated([f"{kind}=1"]))


def test_too_many_invalid_scores_fail(overlay: Path) -> None:
    runs = healthy()
    put(runs, "linear", 101, "actor/ref_quality/valid_rate", 0.94)
    with pytest.raises(StudyError, match=r"6.0% of the judge's scores of linear seed 101"):
        guard(runs, overlay, ROLES)
    limits = parse_tolerated(["judge_invalid=0.1"])
    assert guard(runs, overlay, ROLES, limits)["judge_invalid_rate"] == pytest.approx(0.06)


def test_a_judge_that_was_often_unreadable_when_chosen(overlay: Path) -> None:
    """As at scale smoke: the limit is twice what was usual in M2."""
    record = {"arm": "linear", "candidates": [], "rule": "", "judge_invalid_rate": 0.25}
    overlay.with_suffix(".json").write_text(json.dumps(record))
    runs = healthy()
    put(runs, "linear", 101, "actor/ref_quality/valid_rate", 0.6)
    assert guard(runs, overlay, ROLES)["tolerated"]["judge_invalid"] == 0.5
    put(runs, "linear", 101, "actor/ref_quality/valid_rate", 0.4)
    with pytest.raises(StudyError, match=r"60.0% .* \(tolerated: 50.0%\)"):
        guard(runs, overlay, ROLES)


def test_a_blend_that_was_never_scored_fails(overlay: Path) -> None:
    runs = healthy()
    for seed in (101, 102):
        put(runs, "challenger", seed, "actor/ref_quality/valid_rate", None)
    with pytest.raises(StudyError, match="no run of challenger has a judge's score"):
        guard(runs, overlay, ROLES)
    challenger_path(overlay).write_text(NO_BLEND)
    overlay.write_text(NO_BLEND)
    (only,) = guard(runs, overlay, ROLES)["challengers"]
    assert only["recommended"]["blends"] is False


@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.parametrize("status", ["failed", "missing", "incomplete", "stopped"])
def test_a_run_that_did_not_finish_fails(arm: str, status: str, overlay: Path) -> None:
    runs = healthy()
    rows = runs.runs.arm.eq(arm) & runs.runs.seed.eq(102)
    runs.runs.loc[rows, ["status", "reason"]] = [status, "no memory left"]
    with pytest.raises(StudyError, match=rf"{arm} seed 102 is {status} \(no memory left\)"):
        guard(runs, overlay, ROLES)


def test_an_arm_that_was_never_run_fails(overlay: Path) -> None:
    runs = healthy()
    rest = Collected(runs.runs[runs.runs.arm != "challenger"], runs.metrics, runs.responses)
    with pytest.raises(StudyError, match="no run of the arm challenger"):
        guard(rest, overlay, ROLES)


def test_a_run_without_its_test_result_fails(overlay: Path) -> None:
    runs = healthy()
    put(runs, "challenger", 102, "test/greedy", None)
    with pytest.raises(StudyError, match="without test_greedy: challenger seed 102"):
        guard(runs, overlay, ROLES)


def test_arms_may_have_more_seeds_than_others(overlay: Path) -> None:
    runs = healthy((101, 102, 103))
    fewer = (runs.runs.arm == "challenger") & (runs.runs.seed == 103)
    assert guard(dataclasses.replace(runs, runs=runs.runs[~fewer]), overlay, ROLES)


def test_runs_without_the_endpoint_fail(overlay: Path) -> None:
    runs = healthy()
    for arm in ARMS:
        for seed in (101, 102):
            put(runs, arm, seed, "test/greedy", None)
    with pytest.raises(StudyError, match="no run has the endpoint test_greedy"):
        guard(runs, overlay, ROLES)
    by_validation = ROLES.experiment.model_copy(update={"endpoint": "val_final"})
    roles = dataclasses.replace(ROLES, experiment=by_validation)
    assert guard(runs, overlay, roles)["measure"] == "val_final"


@pytest.mark.parametrize("seeds", [(101, 102), (101, 102, 103, 104, 105)])
def test_falling_below_the_baseline_fails(seeds: tuple[int, ...], overlay: Path) -> None:
    runs = healthy(seeds)
    for place, seed in enumerate(seeds):
        put(runs, "challenger", seed, "test/greedy", 0.2 + 0.01 * (place % 2))
    with pytest.raises(StudyError, match="challenger is below off: test_greedy"):
        guard(runs, overlay, ROLES)
    overlay.write_text(NO_BLEND)  # not to blend is right, then
    assert differences(guard(runs, overlay, ROLES))["high"] < 0


def test_every_regimes_own_recommendation_is_guarded(tmp_path: Path, overlay: Path) -> None:
    roles = load_confirmation("cpu", PARAMS)
    assert roles.challengers == {
        "challenger": None, "sparse_challenger": "sparse", "noisy_challenger": "noisy",
    }  # fmt: skip
    arms = ("sparse_off", "sparse_challenger", "noisy_off", "noisy_challenger")
    runs = healthy(arms=(*ARMS, *arms))
    with pytest.raises(RefblendError, match=r"regimes/sparse\.yaml"):
        guard(runs, overlay, roles)
    (tmp_path / "regimes").mkdir()
    for regime in ("sparse", "noisy"):
        path = tmp_path / "regimes" / f"{regime}.yaml"
        for file in (path, challenger_path(path)):
            file.write_text(BLENDS)
    record = guard(runs, overlay, roles)
    assert [(each["arm"], each["against"]) for each in record["challengers"]] == [
        ("challenger", "off"), ("sparse_challenger", "sparse_off"),
        ("noisy_challenger", "noisy_off"),
    ]  # fmt: skip
    for seed in (101, 102):
        put(runs, "noisy_challenger", seed, "test/greedy", 0.2)
    with pytest.raises(StudyError, match="noisy_challenger is below noisy_off: test_greedy"):
        guard(runs, overlay, roles)
    (tmp_path / "regimes" / "noisy.yaml").write_text(NO_BLEND)
    assert len(guard(runs, overlay, roles)["challengers"]) == 3


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("recommended.challenger.yaml", None, "sparse_challenger against sparse_off"),
        (
            "  sparse: sparse_off\n",
            "",
            "challenger against off, sparse_challenger against sparse_off",
        ),
        ("  sparse_challenger: sparse_off\n", "", "challenger against off, sparse_challenger"),
    ],
)
def test_challengers_that_cannot_be_told_apart_are_refused(
    tmp_path: Path, old: str, new: str | None, named: str
) -> None:
    params = Path(shutil.copytree(PARAMS, tmp_path / "params"))
    path = params / "study" / "M3.yaml"
    text = path.read_text()
    if new is None:
        old, new = f"    overlay: results/{{scale}}/m3/{old}", "    trainer.test_freq: 3"
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))
    with pytest.raises(StudyError, match=f"arms with an overlay: {named}"):
        load_confirmation("cpu", params)


def test_below_the_baseline_within_the_interval_passes(overlay: Path) -> None:
    runs = healthy()
    put(runs, "challenger", 101, "test/greedy", 0.30)
    difference = differences(guard(runs, overlay, ROLES))
    assert difference["estimate"] < 0 < difference["high"]


def test_one_problem_less_in_both_seeds_is_no_evidence(overlay: Path) -> None:
    """Two equal differences have no spread; it is taken as one problem of the test set."""
    runs = healthy()
    for seed in (101, 102):
        put(runs, "challenger", seed, "test/greedy", 0.5 + (seed % 2) / 64 - 1 / 64)
    difference = differences(guard(runs, overlay, ROLES))
    half = stats.t.ppf(0.975, 1) / 64 / np.sqrt(2)
    assert difference["high"] == pytest.approx(-1 / 64 + half, abs=1e-5)

    unknown = healthy(problems=None)
    for seed in (101, 102):
        put(unknown, "challenger", seed, "test/greedy", 0.5 + (seed % 2) / 64 - 1 / 64)
    with pytest.raises(StudyError, match="below off"):
        guard(unknown, overlay, ROLES)


def test_a_wide_spread_keeps_students_interval() -> None:
    differences = pd.Series([0.1, -0.2, 0.05])
    low, high = stats.t.interval(0.95, 2, differences.mean(), stats.sem(differences))
    interval = guarded_interval(differences, 1 / 64)
    assert (interval.low, interval.high) == pytest.approx((low, high))


@pytest.mark.parametrize(
    "text", ["heat=1", "oom", "oom=", "oom=-1", "oom=inf", "oom=nan", "judge_invalid=1.5", "=1"]
)
def test_wrong_limits_are_refused(text: str) -> None:
    with pytest.raises(StudyError, match="--tolerated"):
        parse_tolerated([text])


@pytest.mark.parametrize(
    "text", ["", "algorithm: {}", "algorithm: {ref_quality_score: {stratgy: linear}}", "[1]"]
)
def test_a_file_that_recommends_nothing_is_refused(text: str, overlay: Path) -> None:
    overlay.write_text(text)
    with pytest.raises(RefblendError, match=r"recommended\.yaml"):
        guard(healthy(), overlay, ROLES)


def test_command_line_writes_only_what_passed(tmp_path: Path, overlay: Path) -> None:
    folder, out = tmp_path / "frames", tmp_path / "guards.json"
    write_collected(healthy(), folder)
    common = [
        "guard",
        "--params",
        PARAMS,
        "--collected",
        folder,
        "--recommended",
        overlay,
        "--scale",
        "gpu",
        "--out",
        out,
    ]
    command = [str(part) for part in common]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output or result.exception
    assert json.loads(out.read_text())["tolerated"] == dict(TOLERATED)

    out.unlink()
    runs = healthy()
    put(runs, "off", 101, "incidents/oom", 3)
    write_collected(runs, folder)
    failed = CliRunner().invoke(app, command)
    assert isinstance(failed.exception, StudyError)
    assert failed.exception.exit_status == 2
    assert not out.exists()
    tolerant = CliRunner().invoke(app, [*command, "--tolerated", "oom=3"])
    assert tolerant.exit_code == 0, tolerant.output

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from refblend.errors import StudyError
from refblend.study.runs.checks import record_failure
from refblend.study.runs.collect import collect, read_collected, write_collected
from refblend.study.runs.measures import (
    incident_counts,
    series,
    stability,
    start_and_end,
    validation_frame,
)

MakeRun = Callable[..., Path]


def grid_of(*runs: tuple[str, int]) -> pd.DataFrame:
    rows = [{"experiment": "M1", "arm": a, "seed": str(s), "overrides": "{}"} for a, s in runs]
    return pd.DataFrame(rows, dtype=str)


def test_every_run_is_a_row_whatever_became_of_it(tmp_path: Path, make_run: MakeRun) -> None:
    root = tmp_path / "cpu"
    make_run(root / "off" / "seed_1", 1, blended=False)
    make_run(root / "off" / "seed_2", 2, status="incomplete")
    record_failure(root / "off" / "seed_3", 1)
    make_run(root / "linear" / "seed_1", 1)
    (root / "linear" / "seed_1" / "summary.json").write_text("{torn")
    make_run(root / "linear" / "seed_2", 2)
    (root / "linear" / "seed_2" / "metrics.jsonl").write_text("no json\n")
    names = [("off", 1), ("off", 2), ("off", 3), ("linear", 1), ("linear", 2), ("linear", 3)]
    collected = collect(grid_of(*names), "cpu", tmp_path)
    assert list(collected.runs.status) == [
        "finished",
        "incomplete",
        "failed",
        "failed",
        "failed",
        "missing",
    ]
    assert "unreadable" in collected.runs.reason[3]
    assert "line 1" in collected.runs.reason[4]
    assert len(collected.finished) == 1
    assert set(collected.counted_metrics.arm) == {"off"}


def test_numbers_come_through_unchanged(tmp_path: Path, make_run: MakeRun) -> None:
    make_run(tmp_path / "cpu" / "linear" / "seed_1", 1, steps=20, gain=0.3)
    collected = collect(grid_of(("linear", 1)), "cpu", tmp_path)
    run = collected.runs.iloc[0]
    assert (run.steps, run.wall_time_s, run.resumed, run.commit) == (
        20,
        101.0,
        0,
        "0123456789abcdef",
    )
    assert run.hardware == "Test CPU, 2 cores"
    ends = start_and_end(collected.metrics).set_index("measure")
    assert ends.loc["acc", "start"] == pytest.approx(0.25)
    assert ends.loc["acc", "final"] == pytest.approx(0.55)
    assert ends.loc["acc", "auc"] == pytest.approx(0.40)
    assert ends.loc["sanity", "final"] == pytest.approx(0.60)
    assert ends.loc["sampled", "final"] == pytest.approx(0.45)
    test = series(collected.metrics, "test/greedy")
    assert (test.step.item(), test.value.item()) == (20, pytest.approx(0.57))
    assert len(collected.responses) == 128
    assert set(collected.responses.step) == {5, 20}


def test_several_validation_sources_are_averaged() -> None:
    names = {"val-core/a/b/acc/mean@1": 0.2, "val-core/c/acc/mean@1": 0.6}
    rows = [
        {"arm": "off", "seed": 1, "step": 0, "metric": name, "value": value}
        for name, value in names.items()
    ]
    frame = validation_frame(pd.DataFrame(rows))
    assert frame.value.tolist() == [pytest.approx(0.4)]


def test_a_series_is_one_metric_for_all_runs(tmp_path: Path, make_run: MakeRun) -> None:
    make_run(tmp_path / "cpu" / "off" / "seed_1", 1, blended=False)
    make_run(tmp_path / "cpu" / "linear" / "seed_1", 1)
    metrics = collect(grid_of(("off", 1), ("linear", 1)), "cpu", tmp_path).metrics
    chosen = series(metrics, "actor/ref_quality/avg_entropy", "actor/entropy")
    assert set(chosen.metric) == {"actor/entropy"}
    assert series(metrics, "absent").empty


def test_frames_survive_the_files(tmp_path: Path, make_run: MakeRun) -> None:
    make_run(tmp_path / "cpu" / "linear" / "seed_1", 1)
    collected = collect(grid_of(("linear", 1), ("off", 1)), "cpu", tmp_path)
    write_collected(collected, tmp_path / "out")
    read = read_collected(tmp_path / "out")
    for name in ("runs", "metrics", "responses"):
        left, right = getattr(collected, name), getattr(read, name)
        pd.testing.assert_frame_equal(left, right, check_dtype=False, check_like=False)
    with pytest.raises(StudyError, match="cannot be read"):
        read_collected(tmp_path / "nowhere")


def test_no_run_at_all_gives_empty_frames(tmp_path: Path) -> None:
    collected = collect(grid_of(("off", 1)), "cpu", tmp_path)
    assert list(collected.runs.status) == ["missing"]
    assert collected.metrics.empty
    assert collected.responses.empty
    write_collected(collected, tmp_path / "out")
    assert read_collected(tmp_path / "out").metrics.empty


def test_incidents_are_summed_and_absent_runs_stay_unknown(
    tmp_path: Path, make_run: MakeRun
) -> None:
    make_run(tmp_path / "cpu" / "linear" / "seed_1", 1, incidents={"overlength": 3, "oom": 1})
    collected = collect(grid_of(("linear", 1), ("linear", 2)), "cpu", tmp_path)
    counts = incident_counts(collected.metrics, collected.runs)
    assert counts.loc[0, ["overlength", "oom", "judge_error"]].tolist() == [3, 1, 0]
    assert counts.loc[1, "overlength"] is pd.NA


def test_stability_reads_start_and_end(tmp_path: Path, make_run: MakeRun) -> None:
    make_run(tmp_path / "cpu" / "linear" / "seed_1", 1, steps=20)
    row = stability(collect(grid_of(("linear", 1)), "cpu", tmp_path).metrics).iloc[0]
    assert (row.entropy_start, row.entropy_end) == (pytest.approx(0.875), pytest.approx(0.4))
    assert row.length_end == 24
    assert row.val_drawdown == 0

"""The archive is written where numbers changed."""

from dataclasses import replace
from pathlib import Path

import m2_frames
from fuzz_support import content

from refblend.study.runs.collect import copy_quality, write_archive


def test_runs_that_differ_in_times_only_leave_the_files_as_they_are(tmp_path: Path) -> None:
    runs = m2_frames.collected([("off", 1), ("linear", 1)])
    write_archive(runs, tmp_path)
    before = content(tmp_path)
    write_archive(replace(runs, runs=runs.runs.assign(wall_time_s=99.0, commit="b")), tmp_path)
    assert content(tmp_path) == before
    write_archive(replace(runs, metrics=runs.metrics.assign(value=0.5)), tmp_path)
    assert content(tmp_path) != before


def test_measurements_of_the_models_are_kept_with_their_times(tmp_path: Path) -> None:
    models, made, out = (tmp_path / name for name in ("models", "made", "results"))
    measured, when = models / "quality/actor.json", made / "judge_weak.json"
    for file in (measured, when):
        file.parent.mkdir(parents=True)
        file.write_text("1")
    copy_quality(models, made, out)
    kept = {"quality/actor.json": b"1", "quality/circumstances/judge_weak.json": b"1"}
    assert content(out) == kept
    when.write_text("2")
    copy_quality(models, made, out)
    assert content(out) == kept, "the same, measured at another time"
    measured.write_text("2")
    copy_quality(models, made, out)
    assert content(out) == dict.fromkeys(kept, b"2")

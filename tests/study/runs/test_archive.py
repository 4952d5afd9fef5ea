"""The archive is written where numbers changed."""

from dataclasses import replace
from pathlib import Path

import m2_frames

from refblend.study.runs.collect import copy_quality, has_quality, write_archive


def test_runs_that_differ_in_times_only_leave_the_files_as_they_are(tmp_path: Path) -> None:
    runs = m2_frames.collected([("off", 1), ("linear", 1)])
    assert write_archive(runs, tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    slower = replace(runs, runs=runs.runs.assign(wall_time_s=99.0, commit="b"))
    assert not write_archive(slower, tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert write_archive(replace(runs, metrics=runs.metrics.assign(value=0.5)), tmp_path)


def test_measurements_of_the_models_are_kept_too(tmp_path: Path) -> None:
    for place in ("models/quality/actor.json", "made/judge_weak.json"):
        (tmp_path / place).parent.mkdir(parents=True)
        (tmp_path / place).write_text("{}")
    out = tmp_path / "results"
    assert not has_quality(tmp_path / "models", out)
    copy_quality(tmp_path / "models", tmp_path / "made", out)
    assert has_quality(tmp_path / "models", out)
    kept = sorted(str(path.relative_to(out)) for path in out.rglob("*.json"))
    assert kept == ["quality/actor.json", "quality/circumstances/judge_weak.json"]
    (tmp_path / "models/quality/actor.json").write_text('{"greedy": 0.2}')
    assert not has_quality(tmp_path / "models", out)

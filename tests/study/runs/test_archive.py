"""The archive is written where numbers changed."""

from pathlib import Path

import pandas as pd
import pytest
from made_runs import collected, flat, with_metric

from refblend.study.runs.archive import (
    copy_quality,
    has_quality,
    write_archive,
)
from refblend.study.runs.collect import RESPONSE_COLUMNS, Collected


@pytest.fixture
def runs() -> Collected:
    """Arms off and linear, two seeds each; a metric that one step has alone; a response."""
    made = collected({"off": flat(0.3, 0.4), "linear": flat(0.5, 0.6)})
    made = with_metric(made, "off", 2, "x", 0.1)
    response = {"arm": "linear", "seed": 1, "step": 4, "reward": 1.0, "acc": 1.0} | {
        "judge_score": 0.25,
        "judge_valid": True,
        "judge_path": "text",
        "length": 12.0,
    }
    metrics = made.metrics.sort_values(["arm", "seed", "step", "metric"], ignore_index=True)
    return Collected(made.runs, metrics, pd.DataFrame([response]).astype(RESPONSE_COLUMNS))


def test_runs_that_differ_in_times_only_leave_the_files_as_they_are(tmp_path: Path, runs) -> None:
    assert write_archive(runs, tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    slower = Collected(runs.runs.assign(wall_time_s=99.0, commit="b"), runs.metrics, runs.responses)
    assert not write_archive(slower, tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    better = runs.metrics.assign(value=runs.metrics.value + 0.1)
    assert write_archive(Collected(runs.runs, better, runs.responses), tmp_path)


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

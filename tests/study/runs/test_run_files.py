import json
from pathlib import Path

import pytest
from made_runs import write_run

from refblend.files import write_json
from refblend.study.runs.run_files import ALIGNMENT, bound_to, read_run, read_test


@pytest.fixture
def run(tmp_path) -> Path:
    """A finished run of 20 steps with its evaluation."""
    return write_run(tmp_path / "seed_1", 1, steps=20)


def evaluation_of(run: Path) -> tuple[set[str], str]:
    """Metrics of the evaluation that count, and what the run's record says."""
    record, values, _ = read_run(run)
    assert record["status"] == "finished"
    assert values is not None
    return {name for name in values if name.startswith("test/")}, record["reason"]


def test_the_evaluation_of_this_run_counts(run) -> None:
    assert evaluation_of(run) == ({"test/greedy", "test/sampled"}, "")
    assert bound_to(run, 20) == {"identity": "this run", "step": 20}
    (run / "test.json").unlink()
    assert evaluation_of(run) == (set(), "")


def test_what_another_run_left_does_not_count(run) -> None:
    """The directory was trained anew, and nobody evaluated it since."""
    (run / "identity.json").write_text(json.dumps({"identity": "another run"}))
    values, reason = evaluation_of(run)
    assert values == set()
    assert "belongs to another run" in reason


def test_an_evaluation_before_the_run_went_on_does_not_count(run) -> None:
    """An extended run keeps its identity."""
    report = (run / "test.json").read_text()
    write_run(run, 1, steps=30)
    (run / "test.json").write_text(report)
    values, reason = evaluation_of(run)
    assert values == set()
    assert "measured step 20 of 30" in reason


def test_an_evaluation_that_names_no_run_does_not_count(run) -> None:
    (run / "test.json").write_text(json.dumps({"greedy": 0.5}))
    values, reason = read_test(run, 20)
    assert values == {}
    assert "does not say which run it measured" in reason


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [
        ({"ref_quality_score": {"method": "blend"}}, 1.0),
        ({"ref_quality_score": {"method": "recheck"}, "adv_estimator": "grpo"}, 1.0),
        ({"ref_quality_score": {"method": "gdpo"}, "norm_adv_by_std_in_grpo": False}, None),
        ({"ref_quality_score": {"method": "hero"}}, None),
        ({"adv_estimator": "reinforce_plus_plus_baseline"}, None),
    ],
)
def test_only_runs_that_used_grpos_advantages_have_an_alignment(run, algorithm, expected) -> None:
    write_json(run / "config.json", {"algorithm": algorithm})
    rows = [{"step": 4, "uid": 0, "blended": r, "acc": r} for r in (0.0, 1.0, 1.0)]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    for path in (run / "rollouts").glob("*.jsonl"):
        path.unlink()
    (run / "rollouts" / "4.jsonl").write_text(text)
    _, values, _ = read_run(run)
    found = values.set_index("step")[ALIGNMENT].dropna().to_dict()
    assert found == ({} if expected is None else {4: pytest.approx(expected)})

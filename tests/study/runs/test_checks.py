import json
from pathlib import Path

import pytest
from made_runs import grid_of, write_run
from typer.testing import CliRunner

from refblend.cli.study import app
from refblend.errors import StudyError, TrainingError, WorkerError
from refblend.files import write_json
from refblend.study.runs.checks import block_record, check_milestone, record_failure
from refblend.study.runs.collect import Collected, collect, write_collected


def checked(tmp_path: Path) -> Collected:
    return collect(grid_of(("linear", 1)), "cpu", tmp_path)


def test_checks_pass_and_fail_as_they_should(tmp_path) -> None:
    run = tmp_path / "cpu" / "linear" / "seed_1"
    write_run(run, 1, incidents={"overlength": 2})
    record = check_milestone(checked(tmp_path), {"overlength": 2})
    assert record["incidents"]["overlength"] == 2
    with pytest.raises(StudyError, match="2 overlength incidents"):
        check_milestone(checked(tmp_path), {"overlength": 0})
    log = tmp_path / "train.log"
    log.write_text("first\n\nerror: no memory left\n\n")
    with pytest.raises(StudyError, match="no seed had failed: error: no memory left"):
        record_failure([run], 1, log)
    (run / "summary.json").unlink()
    record_failure([run], 1, log)
    record_failure([run], 1, log)
    with pytest.raises(StudyError, match=r"linear seed 1 is failed \(error: no memory left\)"):
        check_milestone(checked(tmp_path), {})
    attempts = (run / "failures.jsonl").read_text().splitlines()
    assert [json.loads(line)["exit_status"] for line in attempts] == [1, 1]


def test_what_an_older_configuration_finished_does_not_count_for_a_refused_job(tmp_path):
    """Two seeds, the first finished once; then the job is refused before it compared anything."""
    old, new = (tmp_path / "cpu" / "linear" / f"seed_{seed}" for seed in (1, 2))
    write_run(old, 1)
    log = tmp_path / "train.log"
    log.write_text("error: data.train_files: no such file\n")
    assert record_failure([old, new], 2, log) == [new]
    runs = collect(grid_of(("linear", 1), ("linear", 2)), "cpu", tmp_path).runs
    assert list(runs.status) == ["failed", "failed"]
    assert "no such file" in runs.reason[0]
    assert {run["status"] for run in block_record([old, new]).values()} == {"failed"}
    assert json.loads((old / "summary.json").read_text())["status"] == "finished"
    # Both are tried again: the workflow counts the lines.
    assert all((run / "failures.jsonl").exists() for run in (old, new))


@pytest.mark.parametrize("error", [WorkerError, TrainingError])
def test_seeds_that_finished_before_another_was_killed_count(tmp_path, error):
    done, lost, old = (tmp_path / "cpu" / "linear" / f"seed_{seed}" for seed in (1, 2, 3))
    write_run(done, 1)
    write_run(old, 3)
    assert record_failure([done, lost, old], error.exit_status) == [lost]
    runs = collect(grid_of(*(("linear", seed) for seed in (1, 2, 3))), "cpu", tmp_path).runs
    assert list(runs.status) == ["finished", "failed", "failed"], "the last was not compared"


def test_the_marker_names_status_and_identity_of_every_seed(tmp_path) -> None:
    runs = [write_run(tmp_path / f"seed_{seed}", seed) for seed in (1, 2)]
    assert block_record(runs) == {
        seed: {"status": "finished", "identity": "this run"} for seed in ("1", "2")
    }
    summary = runs[1] / "summary.json"
    for change in (
        lambda: write_json(summary, {"status": "stopped"}),
        lambda: write_json(summary, {"steps": 2}),
        summary.unlink,
    ):
        change()
        with pytest.raises(StudyError, match="seed_2 has not ended"):
            block_record(runs)


def test_the_command_checks_its_limits(tmp_path) -> None:
    incidents = {"overlength": 2, "oom": 1}
    write_run(tmp_path / "cpu" / "linear" / "seed_1", 1, incidents=incidents)
    write_collected(checked(tmp_path), tmp_path / "frames")
    out = tmp_path / "checks.json"
    command = ["check", "--collected", str(tmp_path / "frames"), "--out", str(out)]
    limits = ["--overlength=2", "--oom=0"]
    failed = CliRunner().invoke(app, [*command, *limits])
    assert isinstance(failed.exception, StudyError)
    assert "1 oom incidents (tolerated: 0)" in str(failed.exception)
    assert CliRunner().invoke(app, [*command, *limits[:-1], "--oom=1"]).exit_code == 0
    assert json.loads(out.read_text())["tolerated"] == {"nonfinite": 0, "oom": 1, "overlength": 2}

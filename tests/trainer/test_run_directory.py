"""The directory of a run: resumed, refused, moved aside; nothing of it is ever lost."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fuzz_support import IDENTITY, content
from typer.testing import CliRunner

from refblend.cli.main import app
from refblend.config.trainer import TrainerConfig
from refblend.errors import CheckpointError, DiskError
from refblend.files import read_object, write_json
from refblend.identity import IDENTITY_NAME, RunIdentity, read_identity
from refblend.provenance import Source
from refblend.study.runs.checks import record_failure
from refblend.trainer import launch
from refblend.trainer.checkpoint import CheckpointManager, write_state
from refblend.trainer.run_directory import (
    UNCONFIRMED_NAME,
    Prepared,
    find_runs,
    open_run,
    record_start,
    remove_aside,
    run_lock,
)
from refblend.trainer.tracking import MetricsLog

BASE = replace(IDENTITY, segments=(Source("0123456789" * 4, "1" * 40, None),))
OTHER = replace(BASE, config={"algorithm": {"gamma": 0.9}, "trainer": {"test_freq": 5}})
LONGER = replace(BASE, total_steps=5)
OTHER_SOURCE = replace(BASE, segments=(Source("fedcba9876" * 4, "2" * 40, None),))
OTHER_NUMBERS = replace(OTHER_SOURCE, numerics={"train": 2}, libraries={"torch": "2.14.0"})


def start(path: Path, wanted: RunIdentity, overwrite: bool = False, **options: Any) -> Prepared:
    with open_run(path, wanted, TrainerConfig(**options), overwrite) as prepared:
        record_start(path, wanted, prepared)
    return prepared


def train(path: Path, steps: int = 3) -> dict[str, bytes]:
    """A run of this many steps with a checkpoint at its end; the content of all its files."""
    assert start(path, BASE).start == "fresh"
    log = MetricsLog(path / "metrics.jsonl")
    for step in range(steps + 1):
        log.append(step, {"loss": 1.0})
    with CheckpointManager(path / "checkpoints").staging(steps) as staged:
        (staged / "actor").mkdir()
        (staged / "actor" / "model.safetensors").write_bytes(b"weights")
        write_state(staged, {"step": steps})
    write_json(path / "summary.json", {"status": "finished", "steps": steps})
    write_json(path / "test.json", {"greedy": 0.5})
    (path / "my_notes.txt").write_text("keep me")
    return content(path)


def aside(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{path.name}.*Z*"))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "linear" / "seed_1"


REFUSED = {
    "another key": (OTHER, {}, r"another run \(algorithm\.gamma: 1\.0 → 0\.9\).*--overwrite"),
    "other numbers": (
        OTHER_NUMBERS,
        {},
        r"numerics train: 1 → 2; torch: 2\.13\.0 → 2\.14\.0.*accept_changes=true.*--overwrite",
    ),
    "another tree": (
        OTHER_SOURCE,
        {"strict_code": True},
        "source: commit 0123456789 → commit fedcba9876",
    ),
    "fewer steps": (replace(BASE, total_steps=2), {}, "3 steps of this run already"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_refusal_changes_nothing(run, what):
    wanted, options, told = REFUSED[what]
    held = train(run)
    with pytest.raises(CheckpointError, match=told) as e:
        start(run, wanted, **options)
    assert e.value.exit_status == 2
    assert content(run) == held
    assert aside(run) == []


def test_overwrite_moves_the_run_aside_whole(run, caplog):
    held = train(run)
    assert start(run, OTHER, overwrite=True).start == "fresh"
    (kept,) = aside(run)
    assert content(kept) == held, "test.json and what users put there go with their run"
    assert list(content(run)) == [IDENTITY_NAME]
    assert "refblend runs prune" in caplog.text
    assert start(run, OTHER, overwrite=True).start == "resume", "the same call again continues"
    assert aside(run) == [kept]


def test_more_steps_resume_the_run(run):
    held = train(run)
    prepared = start(run, LONGER)
    assert prepared.start == "resume"
    assert list(map(str, prepared.changes)) == ["trainer.total_training_steps: 3 → 5"]
    assert {k: v for k, v in content(run).items() if k != IDENTITY_NAME} == {
        k: v for k, v in held.items() if k != IDENTITY_NAME
    }
    assert start(run, LONGER).changes == (), "it is recorded"


def segments(path: Path) -> list[str]:
    return [each["commit"][:10] for each in read_object(path / IDENTITY_NAME)["segments"]]


def test_another_commit_of_equal_numbers_is_a_segment_of_the_run(run):
    train(run)
    digest = read_identity(run)
    assert start(run, OTHER_SOURCE).start == "resume"
    assert start(run, OTHER_SOURCE).changes == ()
    assert segments(run) == ["0123456789", "fedcba9876"]
    assert read_identity(run) == digest, "the run is the same"
    same = replace(BASE, segments=(replace(OTHER_SOURCE.segments[-1], commit="9" * 40),))
    assert start(run, same, strict_code=True).start == "resume", "of the same tree"


def test_accepted_changes_are_recorded(run):
    train(run)
    assert start(run, OTHER_NUMBERS, accept_changes=True).start == "resume"
    assert read_object(run / IDENTITY_NAME)["numerics"] == {"train": 2}
    assert start(run, OTHER_NUMBERS).start == "resume", "it is recorded"


def test_a_finished_run_without_a_checkpoint_is_not_extended(run):
    train(run)
    (run / "checkpoints" / "global_step_3" / "actor" / "model.safetensors").write_bytes(b"cut")
    with pytest.raises(CheckpointError, match="without a whole checkpoint"):
        start(run, LONGER)
    assert (run / "metrics.jsonl").exists()


def test_resume_mode_disable_moves_the_run_aside(run):
    held = train(run)
    assert start(run, BASE, resume_mode="disable").start == "fresh"
    assert [content(path) for path in aside(run)] == [held]


@pytest.mark.parametrize("lost", ["weights", "optimizer", "folder", "all"])
def test_a_run_without_a_whole_checkpoint_is_moved_aside_and_told(run, caplog, lost):
    train(run)
    (run / "summary.json").unlink()  # killed, not finished
    saved = run / "checkpoints" / "global_step_3"
    if lost == "weights":
        (saved / "actor" / "model.safetensors").write_bytes(b"weigh")
    elif lost == "optimizer":
        (saved / "actor" / "model.safetensors").unlink()
    elif lost == "folder":
        shutil.rmtree(saved)
    held = content(run)
    if lost == "all":
        shutil.rmtree(run / "checkpoints")
        assert replace(start(run, BASE), segments=()) == Prepared("resume"), (
            "as if no checkpoint had been written yet"
        )
        assert "at step 3, before its first checkpoint: it starts again" in caplog.text
        return
    assert start(run, BASE) == Prepared("fresh")
    (kept,) = aside(run)
    assert content(kept) == held, "metrics and rollouts among it"
    assert "no whole checkpoint left" in caplog.text
    assert "starts again" in caplog.text


def test_a_finished_run_needs_no_checkpoint(run):
    held = train(run)
    (run / "checkpoints" / "global_step_3" / "trainer_state.json").unlink()
    del held["checkpoints/global_step_3/trainer_state.json"]
    assert start(run, BASE).finished == {"status": "finished", "steps": 3}
    assert content(run) == held


def test_two_moves_in_one_second_do_not_meet(run):
    train(run)
    for gamma in (0.9, 0.8, 0.7):
        other = replace(BASE, config={"algorithm": {"gamma": gamma}})
        assert start(run, other, overwrite=True).start == "fresh"
    assert len(aside(run)) == 3


def test_unmarked_directory_is_not_touched(tmp_path):
    (tmp_path / "config.json").write_text("a model's")
    for overwrite in (False, True):
        with pytest.raises(CheckpointError, match="not marked"):
            start(tmp_path, BASE, overwrite)
    assert (tmp_path / "config.json").read_text() == "a model's"


@pytest.mark.parametrize("text", ['{"identity": "abc"}', "{", ""])
def test_a_damaged_record_is_refused_or_moved_aside(run, text):
    train(run)
    (run / IDENTITY_NAME).write_text(text)
    with pytest.raises(CheckpointError, match="damaged or of another version"):
        start(run, BASE)
    assert start(run, BASE, overwrite=True).start == "fresh"
    assert (aside(run)[0] / "metrics.jsonl").exists()


@pytest.mark.parametrize("place", ["run", "run/below"])
def test_run_dir_in_place_of_a_file(tmp_path, place):
    (tmp_path / "run").write_text("")
    with pytest.raises(DiskError, match="cannot be used"):
        start(tmp_path / place, BASE)


def test_the_present_directory_is_not_moved_aside(run, monkeypatch):
    """What is written to it afterwards would follow it."""
    before = train(run)
    monkeypatch.chdir(run)
    with pytest.raises(CheckpointError, match=rf"has no name. Call from .*={run}"):
        start(Path(), OTHER, overwrite=True)
    assert content(run) == before


def test_the_lock_holds_the_new_directory_after_a_move(run):
    train(run)
    with (
        open_run(run, OTHER, TrainerConfig(), overwrite=True),
        pytest.raises(CheckpointError, match="another process"),
        run_lock(run),
    ):
        pass


def test_runs_are_listed_and_only_those_aside_are_pruned(run):
    train(run)
    start(run, OTHER, overwrite=True)
    root = run.parents[1]
    cli = CliRunner()
    record_failure([run.with_name("seed_9")], 2)
    write_json(run.with_name("seed_9") / "summary.json", {"status": "failed", "reason": "no data"})
    shown = cli.invoke(app, ["runs", "list", str(root)]).output
    assert shown.count("seed_1") == 2
    assert "seed_9  (no data)" in shown
    assert "3 runs" in shown
    assert "moved aside: 1" in shown
    assert "would delete" in cli.invoke(app, ["runs", "prune", str(root)]).output
    assert len(aside(run)) == 1
    assert "deleted" in cli.invoke(app, ["runs", "prune", str(root), "--yes"]).output
    assert aside(run) == []
    left, _ = find_runs(root)
    assert (left.path, left.aside) == (run, False)
    with pytest.raises(CheckpointError, match="not moved aside"):
        remove_aside(left)
    assert run.is_dir()


def test_a_deletion_that_is_interrupted_again_and_again_is_done_in_the_end(run, monkeypatch):
    train(run)
    start(run, OTHER, overwrite=True)

    def delete() -> None:
        (doomed,) = (found for found in find_runs(run.parent) if found.path != run)
        remove_aside(doomed)

    def interrupt(path: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", interrupt)
        for _ in range(3):
            with pytest.raises(KeyboardInterrupt):
                delete()
    delete()
    assert [found.path for found in find_runs(run.parent)] == [run]


def test_check_refuses_a_directory_of_another_run(tiny_config, tmp_path, monkeypatch):
    def nothing(*_: object) -> dict[str, Any]:
        return {}

    monkeypatch.setattr(launch._Run, "_train", nothing)
    launch.train(tiny_config())
    cli = CliRunner()
    arguments = ["check", "--config", str(tmp_path / "config.yaml")]
    assert cli.invoke(app, arguments).exit_code == 0
    refused = cli.invoke(app, [*arguments, "algorithm.gamma=0.9"])
    assert isinstance(refused.exception, CheckpointError)
    assert "algorithm.gamma: 1.0 → 0.9" in str(refused.exception)


def test_opening_a_finished_run_confirms_it(tmp_path):
    """(test_checks.py: what a refused job leaves does not count before)"""
    assert start(tmp_path / "run", BASE).start == "fresh"
    write_json(tmp_path / "run" / "summary.json", {"status": "finished"})
    record_failure([tmp_path / "run", tmp_path / "other"], 2)
    assert (tmp_path / "run" / UNCONFIRMED_NAME).exists()
    assert start(tmp_path / "run", BASE).start == "resume"
    assert not (tmp_path / "run" / UNCONFIRMED_NAME).exists()


def test_a_run_that_makes_way_leaves_its_failures_to_the_next(tmp_path):
    """The workflow counts them, and repeats a job when the number changes."""
    run = tmp_path / "run"
    start(run, BASE)
    (run / "metrics.jsonl").touch()
    record_failure([run], 1)
    failures = (run / "failures.jsonl").read_text()
    with open_run(run, OTHER, TrainerConfig(), overwrite=True) as prepared:
        assert prepared.start == "fresh"
        with pytest.raises(CheckpointError, match="another process"), run_lock(run):
            pass
    assert (run / "failures.jsonl").read_text() == failures
    assert len(list(tmp_path.glob("run.*/failures.jsonl"))) == 1


def test_a_job_that_failed_before_it_began_can_begin(tmp_path):
    """The workflow recorded a refusal; the next call, with the cause removed, is not refused."""
    record_failure([tmp_path / "run"], 2)
    failures = (tmp_path / "run" / "failures.jsonl").read_text()
    assert json.loads(failures)["identity"] is None
    assert start(tmp_path / "run", BASE).start == "fresh"
    record_failure([tmp_path / "run"], 2)
    last = (tmp_path / "run" / "failures.jsonl").read_text().splitlines()[-1]
    assert json.loads(last)["identity"] == BASE.digest
    (tmp_path / "mine").mkdir()
    write_json(tmp_path / "mine" / "summary.json", {"status": "finished"})
    with pytest.raises(CheckpointError, match=r"holds summary\.json but is not marked"):
        start(tmp_path / "mine", BASE)

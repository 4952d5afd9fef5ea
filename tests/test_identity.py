"""What makes two runs the same, and the directory that belongs to one."""

import logging
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from refblend import identity
from refblend.errors import CheckpointError, DataError, ModelError
from refblend.files import sha256_file
from refblend.identity import (
    hash_inputs,
    prepare_run_dir,
    run_identity,
    run_lock,
)


@pytest.fixture
def inputs(tmp_path: Path) -> tuple[dict, list[Path], list[Path]]:
    data = tmp_path / "train.parquet"
    data.write_bytes(b"rows")
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    return {"seed": 1, "data": {"train_files": Path("x")}}, [data], [model]


def identity_of(config: dict[str, Any], data: list[Path], models: list[Path]) -> str:
    return run_identity(config, hash_inputs(data, models))


def test_inputs_are_hashed_by_path(inputs) -> None:
    _, data, models = inputs
    hashes = hash_inputs(data, models)
    assert hashes.data == {str(data[0]): sha256_file(data[0])}
    assert list(hashes.models) == [str(models[0])]


def test_missing_inputs_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no\.parquet"):
        hash_inputs([tmp_path / "no.parquet"], [])
    with pytest.raises(ModelError, match="no_model"):
        hash_inputs([], [tmp_path / "no_model"])


def test_identity_follows_what_matters(inputs, tmp_path: Path) -> None:
    config, data, models = inputs
    base = identity_of(config, data, models)
    assert base == identity_of(dict(reversed(config.items())), data, models)
    copy = tmp_path / "elsewhere.parquet"
    shutil.copy(data[0], copy)
    assert base == identity_of(config, [copy], models)
    assert base != identity_of(config | {"seed": 2}, data, models)
    data[0].write_bytes(b"other rows")
    changed = identity_of(config, data, models)
    assert changed != base
    (models[0] / "config.json").write_text("{ }")
    assert identity_of(config, data, models) not in (base, changed)


def fill(run: Path) -> None:
    (run / "checkpoints" / "global_step_1").mkdir(parents=True)
    (run / "metrics.jsonl").write_text("{}\n")
    (run / "my_notes.txt").write_text("keep me")


def test_run_dir_fresh_then_resume_then_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = tmp_path / "runs" / "linear" / "seed_1"
    assert prepare_run_dir(run, "aaa") == "fresh"
    fill(run)
    assert prepare_run_dir(run, "aaa") == "resume"
    assert (run / "metrics.jsonl").exists()
    assert caplog.text == ""
    with caplog.at_level(logging.WARNING):
        assert prepare_run_dir(run, "bbb") == "fresh"
    assert "another configuration" in caplog.text
    assert sorted(p.name for p in run.iterdir()) == ["identity.json", "my_notes.txt"]
    assert prepare_run_dir(run, "bbb") == "resume"


def test_unmarked_directory_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("a model's")
    with pytest.raises(CheckpointError, match="not marked"):
        prepare_run_dir(tmp_path, "aaa")
    assert (tmp_path / "config.json").read_text() == "a model's"


def test_kill_during_the_removal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare_run_dir(tmp_path, "aaa")
    fill(tmp_path)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(identity.shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            prepare_run_dir(tmp_path, "bbb")
    # Neither the old run nor the new one may take the remains for its own.
    assert prepare_run_dir(tmp_path, "aaa") == "fresh"
    assert not (tmp_path / "checkpoints").exists()


def test_run_dir_in_place_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(CheckpointError, match="cannot be prepared"):
        prepare_run_dir(tmp_path / "run", "aaa")


def test_run_lock(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from refblend.identity import run_lock\n"
        f"with run_lock(Path({str(tmp_path)!r})): pass"
    )
    with run_lock(tmp_path):
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "another process is training" in other.stderr
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0

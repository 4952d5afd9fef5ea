"""Runs that go to another machine in one file."""

import tarfile
from pathlib import Path

import pytest
from fuzz_support import content
from typer.testing import CliRunner

from refblend.cli.main import app
from refblend.errors import CheckpointError
from refblend.files import write_json
from refblend.study.runs.pack import pack_runs


def make(root: Path, name: str, identity: str = "this", finished: bool = True) -> Path:
    run = root / name
    (run / "checkpoints" / "global_step_4").mkdir(parents=True)
    (run / "checkpoints" / "global_step_4" / "weights").write_bytes(b"1" * 1000)
    (run / "rollouts").mkdir()
    (run / "rollouts" / "4.jsonl").write_text("{}\n")
    write_json(run / "identity.json", {"identity": identity})
    (run / "metrics.jsonl").write_text('{"step": 4}\n')
    if finished:
        write_json(run / "summary.json", {"status": "finished"})
    return run


def test_finished_runs_travel_without_their_checkpoints(tmp_path: Path) -> None:
    here, there, pack = tmp_path / "here", tmp_path / "there", tmp_path / "done.tar.xz"
    make(here, "off/seed_1")
    make(here, "off/seed_2", finished=False)
    make(here, "linear/seed_1")
    make(here, "linear/seed_1.20260101T000000Z")
    cli = CliRunner()
    assert "2 runs" in cli.invoke(app, ["runs", "pack", str(pack), str(here)]).output
    with tarfile.open(pack) as archive:
        archive.extractall(there, filter="data")
    wanted = {
        name: file
        for name, file in content(here).items()
        if name.startswith(("off/seed_1/", "linear/seed_1/")) and "checkpoints" not in name
    }
    assert content(there) == wanted


def test_no_finished_run_is_an_error(tmp_path: Path) -> None:
    make(tmp_path, "off/seed_1", finished=False)
    with pytest.raises(CheckpointError, match="no finished run"):
        pack_runs(tmp_path, tmp_path / "p.tar.xz")
    assert not (tmp_path / "p.tar.xz").exists()

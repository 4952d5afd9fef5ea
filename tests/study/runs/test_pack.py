"""Runs that go to another machine in one file."""

import random
import tarfile
from pathlib import Path

import pytest
from fuzz_support import content
from typer.testing import CliRunner

from refblend.cli.main import app
from refblend.errors import CheckpointError
from refblend.files import write_json
from refblend.study.runs.pack import pack_runs, unpack_runs


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
    shown = cli.invoke(app, ["runs", "unpack", str(pack), str(there)]).output
    assert "2 runs unpacked, 0 were there" in shown
    wanted = {
        name: file
        for name, file in content(here).items()
        if name.startswith(("off/seed_1/", "linear/seed_1/")) and "checkpoints" not in name
    }
    assert content(there) == wanted
    assert unpack_runs(pack, there) == ([], [Path("linear/seed_1"), Path("off/seed_1")])
    assert content(there) == wanted


def test_another_run_stays_and_nothing_is_unpacked(tmp_path: Path) -> None:
    make(tmp_path / "here", "a/seed_1")
    make(tmp_path / "here", "b/seed_1")
    pack_runs(tmp_path / "here", tmp_path / "p.tar.xz")
    make(tmp_path / "there", "b/seed_1", identity="another")
    held = content(tmp_path / "there")
    with pytest.raises(CheckpointError, match="b/seed_1 holds another run"):
        unpack_runs(tmp_path / "p.tar.xz", tmp_path / "there")
    assert content(tmp_path / "there") == held


def test_no_finished_run_is_an_error(tmp_path: Path) -> None:
    make(tmp_path, "off/seed_1", finished=False)
    with pytest.raises(CheckpointError, match="no finished run"):
        pack_runs(tmp_path, tmp_path / "p.tar.xz")
    assert not (tmp_path / "p.tar.xz").exists()


@pytest.mark.parametrize("data", [b"", b"no archive"])
def test_another_file_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "p").write_bytes(data)
    with pytest.raises(CheckpointError, match="cannot be unpacked"):
        unpack_runs(tmp_path / "p", tmp_path / "there")
    with pytest.raises(CheckpointError, match="cannot be unpacked"):
        unpack_runs(tmp_path / "absent", tmp_path / "there")


def test_a_pack_without_a_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "packed.json").write_text("{}")
    with tarfile.open(tmp_path / "models.tar.xz", "w:xz") as archive:
        archive.add(tmp_path / "packed.json", "packed.json")
    with pytest.raises(CheckpointError, match=r"holds no run\..*`refblend models unpack`"):
        unpack_runs(tmp_path / "models.tar.xz", tmp_path / "there")


@pytest.mark.parametrize(("ending", "damage"), [("xz", "cut"), ("xz", "flipped"), ("gz", "cut")])
def test_a_damaged_pack_is_refused(tmp_path: Path, ending: str, damage: str) -> None:
    run = make(tmp_path / "here", "a/seed_1")
    (run / "weights").write_bytes(random.Random(1).randbytes(50_000))
    with tarfile.open(tmp_path / "p", f"w:{ending}") as archive:
        archive.add(run, "a/seed_1")
    whole = (tmp_path / "p").read_bytes()
    half = len(whole) // 2
    flipped = whole[:half] + whole[: -half - 1 : -1]
    (tmp_path / "p").write_bytes(whole[:half] if damage == "cut" else flipped)
    with pytest.raises(CheckpointError, match="cannot be unpacked"):
        unpack_runs(tmp_path / "p", tmp_path / "there")
    assert list((tmp_path / "there").iterdir()) == []


def test_a_name_that_leaves_the_folder_is_refused(tmp_path: Path) -> None:
    run = make(tmp_path / "here", "a/seed_1")
    with tarfile.open(tmp_path / "p", "w") as archive:
        archive.add(run, "../a/seed_1")
    with pytest.raises(CheckpointError, match="cannot be unpacked"):
        unpack_runs(tmp_path / "p", tmp_path / "there")
    assert not (tmp_path / "a").exists()

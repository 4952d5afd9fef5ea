"""Temporary folders: only what is provably dead is removed, and long paths are led to."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from refblend.errors import ResourceError
from refblend.lifecycle import folders

HOLD = """
import sys
from refblend.lifecycle.folders import command_folder
with command_folder() as folder:
    print(folder, flush=True)
    sys.stdin.read()
"""


@contextmanager
def holder(place: Path, *before: str) -> Iterator[tuple["subprocess.Popen[str]", Path]]:
    """A process that has a command's folder in ``place``, and that folder."""
    process = subprocess.Popen(
        [*before, sys.executable, "-c", HOLD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(place)},
    )
    try:
        yield process, Path(process.stdout.readline().strip())
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(folders.tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def long_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / ("long" * 20)
    place.mkdir()
    monkeypatch.setattr(folders.tempfile, "tempdir", str(place))
    return place


def own(place: Path) -> list[Path]:
    return sorted(place.glob(f"{folders.PREFIX}*"))


def test_the_folder_of_a_living_command_stays_and_that_of_a_killed_one_goes(place):
    with holder(place) as (process, path):
        (held,) = own(place)
        with folders.command_folder():
            assert held in own(place)
        assert path.resolve() == held
        process.kill()
        process.wait()
        with folders.command_folder():
            assert held not in own(place)
    assert own(place) == []
    assert not path.exists()
    assert not path.parent.exists() or path.parent == place, "the link's own folder is gone, too"


def test_the_folder_of_another_pid_namespace_stays(place):
    """As of two containers that share a TMPDIR: there our process numbers mean nothing."""
    unshare = shutil.which("unshare")
    inside = (unshare, "--pid", "--fork", "--mount-proc") if unshare else ()
    if not inside or subprocess.run([*inside, "true"], check=False).returncode:
        pytest.skip("no new PID namespaces here")
    with holder(place, *inside):
        (held,) = own(place)
        number = int(held.name.removeprefix(folders.PREFIX).split("-")[0])
        assert number < 10, "its process number there, and another process's here"
        with folders.command_folder():
            assert held in own(place)


@pytest.mark.parametrize("record", [None, "", "another boot"])
def test_what_cannot_be_proved_dead_stays(place, record):
    """A folder of an earlier version, one that is being made, and one of another machine."""
    folder = place / f"{folders.PREFIX}999999-abcdef"
    folder.mkdir()
    if record is not None:
        (folder / "owner").write_text(record)
    with folders.command_folder():
        assert folder in own(place)
    assert own(place) == [folder]


def test_a_long_path_is_led_to_by_a_short_one(long_place):
    with folders.command_folder() as folder:
        assert len(str(folder)) <= folders.LONGEST
        (folder / "file").write_text("here")
        (real,) = own(long_place)
        assert (real / "file").read_text() == "here"
    assert own(long_place) == []
    assert not folder.parent.exists()


def test_without_a_short_place_the_cause_is_named(long_place, tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "_SHORT", (str(tmp_path / "absent"),))
    for ask in (folders.check_temporary, folders.command_folder().__enter__):
        with pytest.raises(ResourceError, match=f"TMPDIR={long_place} is too long"):
            ask()
    assert own(long_place) == []


def test_a_home_that_cannot_be_written_gives_way(tmp_path, monkeypatch, caplog):
    (tmp_path / "file").touch()
    monkeypatch.setenv("HOME", str(tmp_path / "file" / "home"))
    with folders.writable_home():
        other = Path.home()
        (other / ".cache").mkdir()
    assert not other.exists()
    assert "cannot be written" in caplog.text
    monkeypatch.setenv("HOME", str(tmp_path))
    with folders.writable_home():
        assert Path.home() == tmp_path


def test_a_machine_without_shared_memory_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "_SHARED_MEMORY", str(tmp_path / "absent"))
    with pytest.raises(ResourceError, match="absent is not there"):
        folders.check_temporary()

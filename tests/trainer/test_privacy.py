"""A neighbour on the machine can neither read nor replace anything of a run."""

import os
import shutil
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

pytestmark = [pytest.mark.engine, pytest.mark.slow]


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """A folder for temporary files like /tmp: open to all. Its name is short, as sockets need."""
    folder = Path(f"/tmp/d{os.getpid() % 1000}")
    folder.mkdir()
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def test_what_a_run_makes_elsewhere_lies_below_one_folder_of_mode_0700(
    make_run, shared_folder: Path
) -> None:
    run = make_run()
    process = run.start(TMPDIR=str(shared_folder))
    try:
        while not (run.directory / "metrics.jsonl").exists():
            assert process.poll() is None, process.communicate()
            time.sleep(0.5)
        (folder,) = shared_folder.iterdir()
        assert folder.name.startswith(f"refblend-ray-{process.pid}-")
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE((folder / "token").stat().st_mode) == 0o600
        family = psutil.Process(process.pid).children(recursive=True)
        sockets = {c.laddr for p in family for c in p.net_connections("unix") if c.laddr}
        named = [s for s in sockets if s.startswith("/")]
        assert named
        assert all(s.startswith(f"{folder}/") for s in named)
        if os.getuid() == 0:
            for command in (["ls", folder], ["cat", folder / "token"], ["rmdir", folder / "tmp"]):
                done = subprocess.run(command, user="nobody", capture_output=True, text=True)
                assert done.returncode != 0
                assert "Permission denied" in done.stderr
    finally:
        ended = run.finish(process)
    assert ended.status == 0, ended.output
    assert list(shared_folder.iterdir()) == []

"""Runs at the same time on one machine, two calls on one run directory, and what others may see."""

import contextlib
import os
import re
import shutil
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

pytestmark = [pytest.mark.engine, pytest.mark.slow]

MORE_TIME = ("ray.start_timeout_s=900", "trainer.worker_timeout_s=900")
"""Every run has a fraction of the cores."""


def cluster(pid: int) -> tuple[set[str], set[tuple[str, int]]]:
    """Folders of Ray sessions and listening addresses of a call's processes."""
    folders, addresses = set(), set()
    with contextlib.suppress(psutil.NoSuchProcess):
        call = psutil.Process(pid)
        for process in (call, *call.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                words = " ".join(process.cmdline())
                folders |= set(re.findall(r"/refblend-ray-[^/ ]+", words))
                sockets = process.net_connections()
                listening = [c.laddr for c in sockets if c.status == psutil.CONN_LISTEN]
                addresses |= {(address.ip, address.port) for address in listening}
    return folders, addresses


def test_four_runs_at_once_share_nothing_and_give_what_they_give_alone(undisturbed, make_run):
    seeds = (1, 1, 2, 3)
    runs = [make_run(f"trainer.seed={seed}", *MORE_TIME) for seed in seeds]
    calls = [run.start() for run in runs]
    folders: list[set[str]] = [set() for _ in runs]
    hosts: set[str] = set()
    ports_seen = 0
    while any(call.poll() is None for call in calls):
        for number, call in enumerate(calls):
            found, addresses = cluster(call.pid)
            folders[number] |= found
            hosts |= {host for host, _ in addresses}
            ports_seen = max(ports_seen, len(addresses))
        time.sleep(1)
    for run, call in zip(runs, calls, strict=True):
        ended = run.finish(call)
        assert ended.status == 0, ended.output
    assert all(len(found) == 1 for found in folders)
    assert len(set.union(*folders)) == len(seeds), "each has a session of its own"
    assert ports_seen > 5
    assert hosts <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}, "others could connect"

    for run in runs[:2]:
        run.assert_same(undisturbed)
    for run, seed in zip(runs[2:], seeds[2:], strict=True):
        alone = make_run(f"trainer.seed={seed}")
        alone.complete()
        assert alone.canonical_lines() == run.canonical_lines()
        assert alone.canonical_lines() != undisturbed.canonical_lines()


def test_a_second_call_on_a_run_directory_is_refused(undisturbed, make_run):
    run = make_run()
    first = run.start()
    while not (run.directory / "metrics.jsonl").exists():
        assert first.poll() is None
        time.sleep(0.2)
    second = run.train()
    assert second.status == 2, second.output
    assert f"another process is training in {run.directory}" in second.output
    assert "Traceback" not in second.output
    ended = run.finish(first)
    assert ended.status == 0, ended.output
    run.assert_same(undisturbed)


SECRETS = ("WANDB_API_KEY", "HF_TOKEN", "MLFLOW_TRACKING_TOKEN", "AWS_SECRET_ACCESS_KEY")


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """A folder for temporary files like /tmp: open to all. Its name is short, as sockets need."""
    folder = Path(f"/tmp/d{os.getpid() % 1000}")
    folder.mkdir()
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def test_a_neighbour_on_the_machine_can_neither_read_nor_replace_anything(make_run, shared_folder):
    """All that a run makes elsewhere lies in one folder of mode 0700; secrets lie nowhere."""
    run = make_run("trainer.energy=true")
    secrets = {name: f"secret-{number}-0f3b9c" for number, name in enumerate(SECRETS)}
    process = run.start(TMPDIR=str(shared_folder), **secrets)
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
    files = [path for path in run.directory.parent.rglob("*") if path.is_file()]
    assert len(files) > 20
    for value in secrets.values():
        assert value not in ended.output
        assert [path for path in files if value.encode() in path.read_bytes()] == []

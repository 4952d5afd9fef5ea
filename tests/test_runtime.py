"""The environment of a process and the collector during imports."""

import gc
import os
import subprocess
import sys

import pytest

from refblend import runtime


def printed_by(program: str) -> str:
    """What a program says in a process of its own, whose allocator is nobody else's."""
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout


def test_what_the_user_set_wins(monkeypatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    monkeypatch.delenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", raising=False)
    runtime.configure_process()
    assert os.environ["OMP_WAIT_POLICY"] == "ACTIVE"
    assert os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] == "64"


def test_imports_are_spared_by_the_collector() -> None:
    kept = gc.get_freeze_count()
    with runtime.importing():
        assert not gc.isenabled()
        made = [[] for _ in range(1000)]
    assert gc.isenabled()
    assert gc.get_freeze_count() >= kept + len(made)
    gc.unfreeze()


@pytest.mark.parametrize("keep", [False, True])
def test_freed_memory_is_used_again(keep) -> None:
    """Counted in pages that the kernel had to bring: 64 MiB, ten times."""
    program = f"""
import resource
from refblend import runtime
if {keep}:
    runtime.keep_freed_memory()
def fill():
    block = bytearray(64 * 2**20)
    block[::4096] = b"x" * len(block[::4096])
fill()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    fill()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    assert (int(printed_by(program)) < 1000) == keep


def test_kept_memory_is_returned() -> None:
    program = """
import psutil
from refblend import runtime
def resident():
    return psutil.Process().memory_info().rss
runtime.keep_freed_memory()
before = resident()
blocks = [bytearray(b"x" * 2**20) for _ in range(256)]
last = bytearray(1)  # above them, so that the heap cannot simply end earlier
del blocks
kept = resident()
runtime.return_freed_memory()
print(kept - before, resident() - before)
"""
    kept, left = map(int, printed_by(program).split())
    assert kept > 200 * 2**20
    assert left < 20 * 2**20

"""A call that never returns ends the process, its children with it, and says what to do."""

import contextlib
import subprocess
import sys
import threading

import psutil
import pytest

from refblend.lifecycle import stalls

STUCK = """
import subprocess, sys, time
from refblend.lifecycle import stalls
stalls.GRACE_S = 0.2
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
with stalls.stall_limit("waiting for the judge", 0.3):
    time.sleep(600)
"""


def test_a_stuck_call_ends_the_process_and_its_children():
    command = [sys.executable, "-c", STUCK]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 4
    assert done.stderr.startswith("error: waiting for the judge: Ray did not answer within 0.5 s.")
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(int(done.stdout)).wait(10)


def test_a_call_that_returns_leaves_no_timer(monkeypatch):
    monkeypatch.setattr(stalls, "_abandon", lambda *_: pytest.fail("abandoned"))
    before = threading.active_count()
    with pytest.raises(KeyError), stalls.stall_limit("a call that fails"):
        raise KeyError
    with stalls.stall_limit("a call"):
        pass
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.join(5)
    assert threading.active_count() == before

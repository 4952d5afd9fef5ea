"""Exit statuses: the shell's for signals, ours for what a user can fix."""

import os
import signal
import subprocess
import sys

from refblend.lifecycle import status


def test_they_are_those_that_a_shell_reports() -> None:
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
        # Started in the background, a process inherits that SIGINT is ignored.
        default = "" if signum == signal.SIGKILL else f"signal.signal({int(signum)}, 0); "
        code = f"import os, signal; {default}os.kill(os.getpid(), {int(signum)})"
        shell = subprocess.run(
            ["bash", "-c", '"$0" -c "$1"; exit $?', sys.executable, code], capture_output=True
        )
        assert status.of_signal(signum) == shell.returncode
        child = os.waitstatus_to_exitcode(signum)  # the low bits of a wait status are the signal
        assert status.of_child(child) == shell.returncode
    assert status.of_child(3) == 3
    assert status.FIXABLE == 2

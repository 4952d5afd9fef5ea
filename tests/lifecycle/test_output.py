"""A pipe that is closed ends no command and fails no run."""

import subprocess
import sys

import pytest

BODY = """
import logging, os, sys, time
{install}
logging.basicConfig()
from rich.console import Console
for i in range(200):
    print("line", i)
    print("line", i, file=sys.stderr, flush=True)
    logging.warning("line %d", i)
    Console(stderr=True).print("line", i)
    os.system("echo child")
    time.sleep(0.002)
open({mark!r}, "w").write("done")
"""
INSTALL = "from refblend.lifecycle.output import outlast_readers; outlast_readers()"


@pytest.mark.parametrize("lasting", [True, False])
def test_a_process_outlives_the_reader_of_its_output(tmp_path, lasting: bool) -> None:
    mark = tmp_path / "done"
    body = BODY.format(install=INSTALL if lasting else "", mark=str(mark))
    process = subprocess.Popen(
        [sys.executable, "-c", body], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith(b"line 0")
    process.stdout.close()
    status = process.wait(60)
    # Without it the process ends with an error: what this test would find.
    assert (status == 0, mark.exists()) == (lasting, lasting)


def test_output_that_is_read_stays_as_it_is(tmp_path) -> None:
    body = BODY.format(install=INSTALL, mark=str(tmp_path / "done"))
    done = subprocess.run([sys.executable, "-c", body], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert done.stdout.count("line ") == 200
    assert done.stderr.count("line ") == 600

"""A pipe that is closed ends no command and fails no run."""

import subprocess
import sys

BODY = """
import logging, os, sys, time
from refblend.lifecycle.output import outlast_readers
outlast_readers()
logging.basicConfig()
from rich.console import Console
for i in range(200):
    print("line", i)
    print("line", i, file=sys.stderr, flush=True)
    logging.warning("line %d", i)
    Console(stderr=True).print("line", i)
    os.system("echo child")
    time.sleep(0.002)
open("MARK", "w").write("done")
"""


def test_a_process_outlives_the_reader_of_its_output(tmp_path):
    mark = tmp_path / "done"
    body = BODY.replace("MARK", str(mark))
    process = subprocess.Popen(
        [sys.executable, "-c", body], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert process.stdout.readline().startswith(b"line 0")
    process.stdout.close()
    assert process.wait(60) == 0
    assert mark.exists()

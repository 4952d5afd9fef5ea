"""Benchmarks run for minutes and seldom: here they are only imported, all in one process."""

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


def test_every_benchmark_can_be_imported() -> None:
    names = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "peer_trl")
    assert "bench_step" in names
    code = f"import sys; sys.path.insert(0, {str(FOLDER)!r})\nimport {', '.join(names)}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

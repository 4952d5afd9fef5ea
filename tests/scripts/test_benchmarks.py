"""Benchmarks run for minutes and seldom: here they are only imported, all in one process."""

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


def test_every_benchmark_can_be_imported() -> None:
    names = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "peer_trl")
    assert "bench_step" in names
    code = f"import sys; sys.path.insert(0, {str(FOLDER)!r})\nimport {', '.join(names)}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("home", [None, "nowhere"])
def test_without_trl_nothing_is_measured(home: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    from peers import trl_python

    monkeypatch.delenv("TRL_ENV", raising=False)
    if home is not None:
        monkeypatch.setenv("TRL_ENV", home)
    with pytest.raises(SystemExit, match=r"Not run: .*make \.tools/trl"):
        trl_python()

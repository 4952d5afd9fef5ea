"""The notebook's cells run in order, without Jupyter."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize("start", [".", "examples"])
def test_the_notebook_runs_from_a_clone(tmp_path: Path, start: str) -> None:
    for folder in ("results", "scripts"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    (tmp_path / "examples").mkdir()
    cells = json.loads((ROOT / "examples" / "results.ipynb").read_text(encoding="utf-8"))["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path / start,
        env=os.environ | {"MPLBACKEND": "agg"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "+0.033 over 20 seeds" in done.stdout
    assert "alignment" in done.stdout

import os
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from made_runs import resource_row
from typer.testing import CliRunner

from refblend.cli.main import app

PARAMS = Path(__file__).parents[2] / "params"


@pytest.fixture(autouse=True)
def _project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("params").symlink_to(PARAMS)


def measured(milestone: str, *rows: dict[str, Any]) -> Path:
    """The file in which a milestone of scale cpu has what its runs took."""
    path = Path("results") / "cpu" / milestone / "tables" / "resources.csv"
    path.parent.mkdir(parents=True)
    pd.DataFrame(rows).to_csv(path, index=False)
    return path


def plan() -> str:
    return CliRunner().invoke(app, ["plan", "M1", "--scale", "cpu", "--slots", "2"]).stdout


def test_command_plans_from_tables_below_results() -> None:
    long = resource_row("linear", 1, wall_time_s=200.0, peak_memory_gb=5)
    path = measured("m1", resource_row("off", 1), long)
    # Three runs each: 200, 100, 100 on one place and 200, 200 on the other.
    text = plan()
    assert re.search(r"runs +6\nside by side +2\n", text)
    assert re.search(r"makespan, h +0\.1389\n", text)
    assert re.search(r"peak memory, GiB +10\n", text)
    assert str(path) in text


def test_a_milestone_trained_anew_on_this_machine_is_preferred_to_the_shipped_tables() -> None:
    """What a newcomer has after README's first command: M1 of today, M2 and M3 as shipped."""
    for name, seconds, seeds, written in (
        ("m1", 140.0, (1, 2), 1000),
        ("m2", 100.0, (1, 2), 101),
        ("m3", 100.0, (101, 102), 102),
    ):
        runs = [(arm, seed) for arm in ("off", "linear") for seed in seeds]
        path = measured(name, *(resource_row(*run, wall_time_s=seconds) for run in runs))
        os.utime(path, (written, written))
    arms = [row.split() for row in plan().splitlines() if row.startswith(("off", "linear"))]
    assert [(arm[2], arm[-1]) for arm in arms] == [("0.0389", "2")] * 2, "140 s, of two runs"

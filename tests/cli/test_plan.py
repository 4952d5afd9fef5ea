import os
import re
from pathlib import Path

import pytest
from resource_tables import resource_row, resource_table
from typer.testing import CliRunner

from refblend.cli.main import app

PARAMS = Path(__file__).parents[2] / "params"


def test_command_plans_from_tables_below_results(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("params").symlink_to(PARAMS)
    tables = Path("results") / "cpu" / "m1" / "tables"
    tables.mkdir(parents=True)
    rows = [resource_row("off", 1), resource_row("linear", 1, wall_time_s=200.0, peak_memory_gb=5)]
    resource_table(*rows).to_csv(tables / "resources.csv", index=False)
    # Three runs each: 200, 100, 100 on one place and 200, 200 on the other.
    text = CliRunner().invoke(app, ["plan", "M1", "--scale", "cpu", "--slots", "2"]).stdout
    assert re.search(r"runs +6\nside by side +2\n", text)
    assert re.search(r"makespan, h +0\.1389\n", text)
    assert re.search(r"peak memory, GiB +10\n", text)
    assert str(tables / "resources.csv") in text


def test_a_milestone_trained_anew_on_this_machine_is_preferred_to_the_shipped_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a newcomer has after README's first command: M1 of today, M2 and M3 as shipped."""
    monkeypatch.chdir(tmp_path)
    Path("params").symlink_to(PARAMS)
    for place, (name, seconds) in enumerate((("m1", 140.0), ("m2", 100.0), ("m3", 100.0))):
        tables = Path("results") / "cpu" / name / "tables"
        tables.mkdir(parents=True)
        seeds = (101, 102) if name == "m3" else (1, 2)
        rows = [
            resource_row(arm, seed, wall_time_s=seconds)
            for arm in ("off", "linear")
            for seed in seeds
        ]
        resource_table(*rows).to_csv(tables / "resources.csv", index=False)
        written = 1000 if name == "m1" else 100 + place
        os.utime(tables / "resources.csv", (written, written))
    shown = ["plan", "M1", "--scale", "cpu"]
    rows = CliRunner().invoke(app, [*shown, "--slots", "2"]).stdout.splitlines()
    arms = [row.split() for row in rows if row.startswith(("off", "linear"))]
    assert [(arm[2], arm[-1]) for arm in arms] == [("0.0389", "2")] * 2, "140 s, of two runs"

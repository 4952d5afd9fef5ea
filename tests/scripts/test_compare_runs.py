"""The comparison of runs trained anew with a study's archive."""

import json
import shutil
from pathlib import Path

import compare_runs
import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

from refblend.study.runs.collect import collect, write_collected


def write(folder: Path, accuracy: float) -> None:
    """A finished run of one step with a test."""
    folder.mkdir(parents=True)
    row = {"step": 1, "val/acc": accuracy, "timing_s/step": accuracy}
    (folder / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    (folder / "summary.json").write_text(json.dumps({"status": "finished"}))
    (folder / "rollouts").mkdir()
    response = {"step": 1, "reward": 1.0, "acc": 1.0, "length": 3, "response": "x"}
    (folder / "rollouts" / "1.jsonl").write_text(json.dumps(response) + "\n")


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """Runs off/seed_1 and off/seed_2 below runs/cpu, and their archive in results/cpu."""
    for seed in (1, 2):
        write(tmp_path / f"runs/cpu/off/seed_{seed}", 0.25 * seed)
    grid = pd.DataFrame({"arm": ["off", "off"], "seed": ["1", "2"], "overrides": "{}"})
    (tmp_path / "results/cpu").mkdir(parents=True)
    write_collected(collect(grid, "cpu", tmp_path / "runs"), tmp_path / "results/cpu")
    return tmp_path


def compare(study: Path) -> tuple[int, str]:
    """Calls the script: status and output."""
    app = typer.Typer()
    app.command()(compare_runs.main)
    folders = [str(study / name / "cpu") for name in ("results", "runs")]
    result = CliRunner().invoke(app, folders, env={"COLUMNS": "200"})
    return result.exit_code, result.output


def test_the_runs_that_are_there_are_compared_but_not_their_times(study: Path) -> None:
    shutil.rmtree(study / "runs/cpu/off/seed_2")
    metrics = study / "runs/cpu/off/seed_1/metrics.jsonl"
    metrics.write_text(metrics.read_text().replace('"timing_s/step": 0.25', '"timing_s/step": 9'))
    status, output = compare(study)
    assert status == 0, output
    assert "off, seed 1" in output
    assert "seed 2" not in output
    shutil.rmtree(study / "runs/cpu/off")
    status, output = compare(study)
    assert status == 2
    assert "no run below" in output


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("metrics.jsonl", '"val/acc": 0.25', '"val/acc": 0.2500001', "val/acc, step 1: 0.25 arch"),
        ("metrics.jsonl", '"val/acc": 0.25', '"val/acc": 0.25, "x": 1', "x, step 1: nan archived"),
        ("metrics.jsonl", '"val/acc": 0.25, ', "", "val/acc, step 1: 0.25 archived, nan anew"),
        ("rollouts/1.jsonl", '"length": 3', '"length": 4', "that differ"),
        ("summary.json", "finished", "failed", "failed"),
    ],
)
def test_a_difference_is_named_and_fails(study, file, old, new, said) -> None:
    path = study / "runs/cpu/off/seed_1" / file
    changed = path.read_text().replace(old, new)
    assert changed != path.read_text()
    path.write_text(changed)
    status, output = compare(study)
    assert status == 1, output
    assert said in output

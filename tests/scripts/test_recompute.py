"""The independent recomputation agrees with the package, and finds what was changed."""

import shutil
import subprocess
import sys
from pathlib import Path

import m2_frames as frames
import pandas as pd
import pytest
import recompute

from refblend.study.design.grid import build_grid, write_grid
from refblend.study.report.build import Archive, Place
from refblend.study.runs.collect import write_collected

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "recompute.py"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made runs of the smallest scale with their archive and verdicts; one run failed."""
    folder = tmp_path_factory.mktemp("results")
    study = frames.study("smoke", {"linear": 0.1}, [("linear_terminal", 2)])
    write_grid(build_grid(list(study.experiments), "smoke", ROOT / "params"), folder / "grid.tsv")
    write_collected(study.collected, folder)
    Archive.read(Place("smoke", folder, folder, ROOT / "params")).write_verdicts()
    return folder


def test_other_code_finds_the_same_numbers(results: Path) -> None:
    done = subprocess.run([sys.executable, SCRIPT, results], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    count = len(pd.read_csv(results / "verdicts.csv"))
    assert f"{count} verdicts" in done.stdout
    assert "0 differences" in done.stdout


def test_what_it_cannot_recompute_is_left_out(results: Path, tmp_path: Path, capsys) -> None:
    shutil.copytree(results, tmp_path, dirs_exist_ok=True)
    table = pd.read_csv(results / "verdicts.csv")
    (name, *_) = table.experiment
    table.loc[0, "endpoint"] = "loss_spikes"
    for rows, told in ((table, " 0 differences"), (table[:1], "no verdicts to recompute")):
        rows.to_csv(tmp_path / "verdicts.csv", index=False)
        assert recompute.main(tmp_path) == 0
        said = capsys.readouterr().out
        assert f"{name}: left out" in said
        assert told in said


def test_it_imports_nothing_of_the_package() -> None:
    text = SCRIPT.read_text()
    assert "import refblend" not in text
    assert "from refblend" not in text


@pytest.mark.parametrize("column", ["estimate", "high", "p_adjusted", "p_equivalence", "verdict"])
def test_a_changed_number_is_named(results: Path, column: str) -> None:
    table = pd.read_csv(results / "verdicts.csv", keep_default_na=False, na_values=[""])
    metrics = pd.read_parquet(results / "runs.parquet")
    grid = pd.read_csv(results / "grid.tsv", sep="\t")
    runs = pd.read_csv(results / "runs.csv").query("status == 'finished'")[["arm", "seed"]]
    values = recompute.endpoints(metrics.merge(runs, on=["arm", "seed"]))
    found = recompute.recomputed(table, values, recompute.runs_of(grid))
    assert recompute.differences(table, found) == []
    place = table.index[table.high.notna()][0]
    changed = table.copy() if column == "verdict" else table.astype({column: float})
    changed.loc[place, column] = "better" if column == "verdict" else table.loc[place, column] - 0.1
    (problem,) = recompute.differences(changed, found)
    assert f"{table.loc[place, 'treated']} − " in problem
    assert f": {column} is " in problem


def test_a_page_is_compared_with_the_table() -> None:
    row = {"treated": "a", "reference": "b", "verdict": "better"}
    table = pd.DataFrame([row | {"n": 20, "estimate": 0.1234, "low": 0.1134, "high": 0.1334}])
    page = "|X|`a` − `b`|**better**|20|+0.123 ±0.010|+0.100 ±0.020|\n"
    assert recompute.page_problems("m2", page, table) == []
    for right, wrong in (("0.123", "0.124"), ("0.010", "0.012"), ("better", "worse"), ("`b`", "c")):
        (problem,) = recompute.page_problems("m2", page.replace(right, wrong), table)
        assert "m2: the page lacks `a` − `b`" in problem
    few = page.replace(" ±0.010", "")
    assert recompute.page_problems("m2", few, table.assign(n=2)) == []

"""The independent recomputation agrees with the package, and finds what was changed."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from refblend.study.design.grid import build_grid, write_grid
from refblend.study.report.verdicts import write_verdicts
from refblend.study.runs.archive import write_archive

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "recompute.py"


def load(path: Path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made runs of the smallest scale with their archive and verdicts; one run failed."""
    folder = tmp_path_factory.mktemp("results")
    frames = load(ROOT / "tests" / "study" / "m2_frames.py")
    study = frames.study("smoke", {"linear": 0.1}, [("linear_terminal", 2)])
    write_grid(build_grid(list(study.experiments), "smoke", ROOT / "params"), folder / "grid.tsv")
    write_archive(study.collected, folder)
    write_verdicts("smoke", folder, ROOT / "params")
    return folder


def test_other_code_finds_the_same_numbers(results: Path) -> None:
    done = subprocess.run([sys.executable, SCRIPT, results], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    count = len(pd.read_csv(results / "verdicts.csv"))
    assert f"{count} verdicts" in done.stdout
    assert "0 differences" in done.stdout


def test_it_imports_nothing_of_the_package() -> None:
    text = SCRIPT.read_text()
    assert "import refblend" not in text
    assert "from refblend" not in text


@pytest.mark.parametrize("column", ["estimate", "high", "p_adjusted", "p_equivalence", "verdict"])
def test_a_changed_number_is_named(results: Path, column: str, tmp_path: Path) -> None:
    recompute = load(SCRIPT)
    table = pd.read_csv(results / "verdicts.csv", keep_default_na=False, na_values=[""])
    metrics = pd.read_parquet(results / "runs.parquet")
    grid = pd.read_csv(results / "grid.tsv", sep="\t")
    seeds = grid.groupby("experiment").seed.agg(set)
    runs = pd.read_csv(results / "runs.csv").query("status == 'finished'")[["arm", "seed"]]
    values = recompute.endpoints(metrics.merge(runs, on=["arm", "seed"]))
    found = recompute.recomputed(table, values, seeds)
    assert recompute.differences(table, found) == []
    place = table.index[table.high.notna()][0]
    changed = table.copy()
    changed.loc[place, column] = "better" if column == "verdict" else table.loc[place, column] - 0.1
    (problem,) = recompute.differences(changed, found)
    assert f"{table.loc[place, 'treated']} − " in problem
    assert f": {column} is " in problem


def test_the_first_page_is_compared_with_the_table() -> None:
    recompute = load(SCRIPT)
    row = {"primary": True, "verdict": "better", "treated": "a", "reference": "b"}
    table = pd.DataFrame([row | {"estimate": 0.1234}])
    page = "Of 1 primary contrasts 1 is better, 0 worse, 0 equivalent and 0 undecided\n"
    page += "| a − b | +0.123 |\n\n## More"
    assert recompute.page_problems(page, table) == []
    assert "lacks a − b" in recompute.page_problems(page.replace("0.123", "0.124"), table)[0]
    assert "has [1, 1, 0, 0, 0]" in recompute.page_problems(page.replace("1 is", "0 are"), table)[0]

"""The independent recomputation agrees with the package, and finds what was changed."""

import subprocess
import sys
from pathlib import Path

import m2_frames as frames
import numpy as np
import pandas as pd
import pytest
import recompute

from refblend.study.design.grid import build_grid, write_grid
from refblend.study.report.verdicts import write_verdicts
from refblend.study.runs.archive import write_archive
from refblend.study.stats.exact import equivalence_p, exact_p

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "recompute.py"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made runs of the smallest scale with their archive and verdicts; one run failed."""
    folder = tmp_path_factory.mktemp("results")
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


def test_the_folder_is_asked_for() -> None:
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True)
    assert done.returncode == 2
    assert "the following arguments are required: folder" in done.stderr


def test_experiments_of_a_report_are_those_of_its_runs(tmp_path: Path) -> None:
    runs = {"First": [("off", 1), ("linear", 1)], "M1": [("off", 1)], "Q": [("off", 2)]}
    assert recompute.experiments_of(tmp_path / "m1", runs) == ["M1"]
    (tmp_path / "m1" / "tables").mkdir(parents=True)
    table = tmp_path / "m1" / "tables" / "incidents.csv"
    table.write_text("arm,seed,status\noff,1,finished\nlinear,1,failed\nall,,1 of 2\n")
    assert recompute.experiments_of(tmp_path / "m1", runs) == ["First"]


def test_it_imports_nothing_of_the_package() -> None:
    text = SCRIPT.read_text()
    assert "import refblend" not in text
    assert "from refblend" not in text


@pytest.mark.parametrize("column", ["estimate", "high", "p_adjusted", "p_equivalence", "verdict"])
def test_a_changed_number_is_named(results: Path, column: str, tmp_path: Path) -> None:
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


def test_p_values_of_two_samples_may_differ_by_their_errors_only() -> None:
    rng = np.random.default_rng(0)
    seeds, runs = range(20), pd.MultiIndex.from_product([["a", "b"], range(20)])
    values = pd.DataFrame({"test_greedy": rng.normal(0, 0.01, 40)}, runs.set_names(["arm", "seed"]))
    x, y = (values.xs(arm, level="arm")["test_greedy"].to_numpy() for arm in "ab")
    row = {"experiment": "X", "primary": True, "added": 0, "n": len(seeds)}
    row |= {"treated": "a", "reference": "b"}
    row |= {"endpoint": "test_greedy", "paired": False, "alpha": 0.05, "margin": 0.02}
    row |= {"estimate": x.mean() - y.mean(), "p": exact_p(x, y, False), "verdict": "equivalent"}
    row |= dict(zip(("low", "high"), recompute.interval(x, y, False, 0.95), strict=True))
    row |= {"p_equivalence": equivalence_p(x, y, False, 0.02)}
    table = pd.DataFrame([row]).assign(
        p_adjusted=lambda made: made.p, p_equivalence_adjusted=lambda made: made.p_equivalence
    )
    found = recompute.recomputed(table, values, {"X": list(values.index)})
    assert found.p[0] != table.p[0]  # other rearrangements were drawn
    assert recompute.differences(table, found) == []
    (problem,) = recompute.differences(table.assign(p=table.p + 0.03), found)
    assert "p is" in problem
    (problem,) = recompute.differences(table.assign(verdict="undecided"), found)
    assert "verdict is undecided" in problem


def test_the_first_page_is_compared_with_the_table() -> None:
    row = {"primary": True, "verdict": "better", "treated": "a", "reference": "b"}
    table = pd.DataFrame([row | {"estimate": 0.1234}])
    page = "Of 1 primary contrasts 1 is better, 0 worse, 0 equivalent and 0 undecided\n"
    page += "| a − b | +0.123 |\n\n## More"
    assert recompute.page_problems(page, table) == []
    assert "lacks a − b" in recompute.page_problems(page.replace("0.123", "0.124"), table)[0]
    assert "has [1, 1, 0, 0, 0]" in recompute.page_problems(page.replace("1 is", "0 are"), table)[0]


@pytest.fixture(scope="module")
def accuracies() -> pd.DataFrame:
    """Greedy test accuracy of two arms and three seeds."""
    runs = {("off", 1): 0.40, ("off", 2): 0.42, ("off", 3): 0.44}
    runs |= {("linear", 1): 0.50, ("linear", 2): 0.53, ("linear", 3): 0.53}
    index = pd.MultiIndex.from_tuples(runs, names=["arm", "seed"])
    return pd.DataFrame({"test_greedy": runs.values()}, index=index)


def test_m1_s_page_is_compared_with_the_runs(accuracies: pd.DataFrame) -> None:
    page = (
        "Arm `off` reaches a greedy test accuracy of 0.420 [0.370, 0.470] (n = 3)."
        " Arm `linear` reaches a greedy test accuracy of 0.520 [0.477, 0.563] (n = 3), "
        "+0.100 [+0.075, +0.125] against `off`."
    )
    assert recompute.m1_problems(page, accuracies) == []
    for right, wrong in (("0.420", "0.421"), ("+0.075", "+0.077"), ("(n = 3),", "(n = 4),")):
        (problem,) = recompute.m1_problems(page.replace(right, wrong), accuracies)
        assert "is not what the runs give" in problem
    assert recompute.m1_problems("nothing", accuracies) != []


def test_m3_s_page_is_compared_with_the_verdicts() -> None:
    names = {"treated": ["a", "a"], "reference": ["b", "c"], "primary": [True, False]}
    table = pd.DataFrame(names)
    numbers = {"n": [4, 0], "estimate": [0.1, None], "low": [0.075, None], "high": [0.125, None]}
    found = pd.DataFrame(numbers | {"verdict": ["better", "undecided"]}).astype({"estimate": float})
    page = "**Better**: on fresh seeds `a` − `b` is +0.100 [+0.075, +0.125] (n = 4 pairs) by …\n"
    page += "| x | a − b | +0.100 [+0.075, +0.125] | better |\n| y | a − c | – | undecided |\n"
    assert recompute.answer_problems("M3", page, table, found) == []
    wrong = {"Better": "Worse", "n = 4": "n = 5", "is +0.100": "is +0.101", "`b`": "`c`"}
    for right, other in (wrong | {"| better": "| worse", "| +0.100": "| +0.110"}).items():
        (problem,) = recompute.answer_problems("M3", page.replace(right, other), table, found)
        assert "M3" in problem
    empty = found.assign(n=0, estimate=float("nan"), low=float("nan"), high=float("nan"))
    untested = "**Not tested**\n| a − b | – | better |\n| a − c | – | undecided |"
    assert recompute.answer_problems("M3", untested, table, empty) == []
    assert recompute.answer_problems("M3", "nothing", table, found) != []

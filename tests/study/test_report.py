import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from refblend.cli.study import app
from refblend.study.layout import M1_FIGURES, M1_TABLES, PLOT_DATA
from refblend.study.report.m1.figures import FIGURES, bin_scores
from refblend.study.report.m1.tables import to_markdown

MakeRun = Callable[..., Path]
EXPERIMENT = Path(__file__).parents[2] / "params" / "study" / "M1.yaml"
GRID = "experiment\tarm\tseed\toverrides\n" + "".join(
    f"M1\t{arm}\t{seed}\t{{}}\n" for arm in ("off", "linear") for seed in (1, 2)
)


def call(*arguments: object) -> None:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output or result.exception


@pytest.fixture
def written(tmp_path: Path, make_run: MakeRun, quality_paths: list[Path]) -> Path:
    """A report of two arms; linear's second seed is missing."""
    for arm, seed in (("off", 1), ("off", 2), ("linear", 1)):
        gain = 0.2 if arm == "off" else 0.3
        make_run(tmp_path / "runs" / "cpu" / arm / f"seed_{seed}", seed, 10, gain, arm != "off")
    grid, frames, out = tmp_path / "grid.tsv", tmp_path / "frames", tmp_path / "m1"
    grid.write_text(GRID)
    common = ["--collected", frames, "--experiment", EXPERIMENT]
    call("collect", "--grid", grid, "--scale", "cpu", "--root", tmp_path / "runs", "--out", frames)
    call("tables", *common, "--out", out / "tables", *quality_paths)
    call("figures", *common, "--out", out / "figures", *quality_paths)
    call("report", *common, "--scale", "cpu", "--grid", grid, "--out", out)
    return out


def test_report_tables_and_figures_are_whole(written: Path) -> None:
    for name in M1_TABLES:
        assert (written / "tables" / f"{name}.csv").stat().st_size
        assert (written / "tables" / f"{name}.md").stat().st_size
    for name in M1_FIGURES:
        svg = (written / "figures" / f"{name}.svg").read_text()
        assert "<dc:date>" not in svg
        assert (written / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    for name in PLOT_DATA:
        assert len(pd.read_csv(written / "plots" / f"{name}.csv"))

    text = (written / "report.md").read_text()
    assert "3 of 4 runs finished" in text
    assert "- `linear`, seed 2: **missing**, no run directory" in text
    assert "judge-error 0" in text
    for name in M1_FIGURES:
        assert f"(figures/{name}.png)" in text
    assert "Commit 0123456789." in text
    assert "off n = 2, linear n = 1 (1 of 4 runs did not finish)" in text

    accuracy = pd.read_csv(written / "tables" / "final_accuracy.csv")
    assert accuracy.status.tolist() == ["finished", "finished", "finished", "missing"]
    assert accuracy.val_gain[2] == pytest.approx(0.3)
    assert accuracy.test_gain[2] == pytest.approx(0.3)
    summary = pd.read_csv(written / "tables" / "arm_summary.csv").set_index(["arm", "measure"])
    row = summary.loc[("linear", "val acc gain")]
    assert (row.runs, row.n) == (2, 1)
    assert row["diff"] == pytest.approx(0.1)
    incidents = pd.read_csv(written / "tables" / "incidents.csv")
    assert incidents.iloc[-1].status == "3 of 4"

    metrics = json.loads((written / "metrics.json").read_text())
    assert metrics["runs"] == {"planned": 4, "finished": 3}
    assert metrics["arms"]["off"]["val_acc_gain"]["mean"] == pytest.approx(0.2)


def test_figures_are_the_declared_ones() -> None:
    assert tuple(FIGURES) == M1_FIGURES


def test_everything_is_written_when_nothing_ran(tmp_path: Path) -> None:
    grid, frames, out = tmp_path / "grid.tsv", tmp_path / "frames", tmp_path / "m1"
    grid.write_text(GRID)
    common = ["--collected", frames, "--experiment", EXPERIMENT]
    call("collect", "--grid", grid, "--scale", "cpu", "--root", tmp_path / "runs", "--out", frames)
    call("tables", *common, "--out", out / "tables")
    call("figures", *common, "--out", out / "figures")
    call("report", *common, "--scale", "cpu", "--grid", grid, "--out", out)
    assert "0 of 4 runs finished" in (out / "report.md").read_text()


def test_bins_against_a_loop() -> None:
    rng = np.random.default_rng(0)
    scores, right = pd.Series(rng.uniform(size=200)), pd.Series(rng.integers(0, 2, size=200))
    scores.iloc[0] = 1.0  # belongs to the last bin
    bins = bin_scores(scores, right)
    expected = []
    for low in range(10):
        chosen = [
            i for i, s in enumerate(scores) if s * 10 >= low and (s * 10 < low + 1 or low == 9)
        ]
        if chosen:
            expected.append((np.mean(scores[chosen]), np.mean(right[chosen]), len(chosen)))
    np.testing.assert_allclose(bins.to_numpy(), expected)


def test_markdown_cells_do_not_break_the_table() -> None:
    frame = pd.DataFrame(
        {
            "a_name": ["x|y", "two\nlines"],
            "value": [0.123456, np.nan],
            "count": pd.array([1, None], dtype="Int64"),
            "flag": [True, False],
            "empty": [None, None],
        }
    )
    text = to_markdown(frame)
    assert "x\\|y" in text
    assert "two lines" in text
    assert "0.1235" in text
    assert "yes" in text
    assert "empty" not in text
    assert text.count("\n") == 3
    assert to_markdown(frame.iloc[:0]) == "No data."

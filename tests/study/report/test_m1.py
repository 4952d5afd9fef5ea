import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from refblend.study.design.grid import read_grid
from refblend.study.report.engine import new_tables, read_caption
from refblend.study.report.engine import render as render_text
from refblend.study.report.m1.text import _difference, answers, opposite
from refblend.study.report.plotting.panels import bin_scores
from refblend.study.report.registry import Inputs, load_report
from refblend.study.runs.collect import collect, write_collected

MakeRun = Callable[..., Path]
Render = Callable[..., Path]
PARAMS = Path(__file__).parents[3] / "params"
GRID = "experiment\tarm\tseed\toverrides\n" + "".join(
    f"M1\t{arm}\t{seed}\t{{}}\n" for arm in ("off", "linear") for seed in (1, 2)
)


def collected(root: Path) -> Path:
    """Collect the runs below ``root``."""
    (root / "grid.tsv").write_text(GRID)
    frames = collect(read_grid(root / "grid.tsv"), "cpu", root / "runs")
    write_collected(frames, root / "runs" / "cpu" / "_collected" / "m1")
    return root


@pytest.fixture
def written(tmp_path: Path, make_run: MakeRun, quality_paths: list[Path], render: Render) -> Path:
    """A report of two arms; linear's second seed is missing."""
    for arm, seed in (("off", 1), ("off", 2), ("linear", 1)):
        gain = 0.2 if arm == "off" else 0.3
        make_run(tmp_path / "runs" / "cpu" / arm / f"seed_{seed}", seed, 10, gain, arm != "off")
    return render(collected(tmp_path), "m1")


def test_report_tables_and_figures_are_whole(written: Path) -> None:
    report, text = load_report("m1"), (written / "report.md").read_text()
    for table in report.artifacts({}, "table"):
        assert (written / "tables" / f"{table.name}.csv").stat().st_size
        assert (written / "tables" / f"{table.name}.tex").exists() == table.shown
    for figure in report.artifacts({}, "figure"):
        svg = written / "figures" / f"{figure.name}.svg"
        assert "<dc:date>" not in svg.read_text()
        assert f"(figures/{figure.name}.svg)\n\n*{read_caption(svg)}*" in text
        assert "Commit 0123456789." in read_caption(svg)
        assert "off n = 2, linear n = 1 (1 of 4 runs did not finish)" in read_caption(svg)
        assert (written / "figures" / f"{figure.name}.png").exists() == figure.preview
    for plot in report.artifacts({}, "plot"):
        assert len(pd.read_csv(written / "plots" / f"{plot.name}.csv"))

    assert "3 of 4 runs finished" in text
    assert "- `linear`, seed 2: **missing**, no run directory" in text
    assert "judge-error 0" in text
    assert "**No**: `linear` breaks the rule that every run finishes." in text

    accuracy = pd.read_csv(written / "tables" / "final_accuracy.csv")
    assert accuracy.status.tolist() == ["finished", "finished", "finished", "missing"]
    assert accuracy.val_gain[2] == pytest.approx(0.3)
    assert accuracy.test_gain[2] == pytest.approx(0.3)
    summary = pd.read_csv(written / "tables" / "arm_summary.csv").set_index(["arm", "measure"])
    row = summary.loc[("linear", "val_gain")]
    assert (row.runs, row.n, row.pairs) == (2, 1, 1)
    assert row["diff"] == pytest.approx(0.1)
    incidents = pd.read_csv(written / "tables" / "incidents.csv")
    assert incidents.iloc[-1].status == "3 of 4"

    metrics = json.loads((written / "metrics.json").read_text())
    assert (metrics["runs"], metrics["missing"]) == (4, 1)
    assert metrics["accuracy"] == pytest.approx(0.57)
    assert metrics["diff"] == pytest.approx(0.1)


@pytest.mark.parametrize("problems", [512, None])
def test_the_warm_start_is_said_to_be_tested_otherwise_than_the_runs(
    tmp_path: Path, make_run: MakeRun, quality_paths: list[Path], problems: int | None
) -> None:
    make_run(tmp_path / "runs" / "cpu" / "off" / "seed_1", 1, 10, 0.2, False)
    known = {} if problems is None else {"problems": problems}
    quality_paths[0].write_text(json.dumps({"greedy": 0.178} | known))
    folders = (collected(tmp_path) / "runs/cpu/_collected/m1", tmp_path / "models" / "cpu")
    report = load_report("m1")
    inputs = Inputs("cpu", ("M1",), *folders, tmp_path / "results", PARAMS)
    study = report.read(inputs)
    tables = dict(new_tables(report.artifacts(inputs.experiments, "table"), study))
    captions = dict.fromkeys(report.names("figure", inputs.experiments), "a caption")
    text = render_text(report, inputs, study, tables, captions)
    on = "the test set" if problems is None else "the first 512 problems of the test set"
    assert f"The warm start that all runs begin from has 0.178 on {on}, by the strict rule." in text
    assert f"The actor from which all runs start ({on}, by the strict rule: only a finished" in text
    assert "`test gain` compares `test final`, on the whole test set, with the actor's" in text


def test_everything_is_written_when_nothing_ran(tmp_path: Path, render: Render) -> None:
    out = render(collected(tmp_path), "m1")
    assert "0 of 4 runs finished" in (out / "report.md").read_text()


def test_models_of_the_user_leave_no_empty_table(
    tmp_path: Path, make_run: MakeRun, render: Render
) -> None:
    for arm, seed in (("off", 1), ("off", 2), ("linear", 1), ("linear", 2)):
        make_run(tmp_path / "runs" / "cpu" / arm / f"seed_{seed}", seed, 10, 0.3, arm != "off")
    text = (render(collected(tmp_path), "m1") / "report.md").read_text()
    assert "No data." not in text
    assert "models that the study did not make" in text


def judge(tmp_path: Path, make_run: MakeRun, render: Render, **linear: dict[str, object]) -> str:
    """The verdict on `linear` by its runs' arguments, of a baseline that gains 0.2; a ``spread``
    moves its gain up or down with the seed."""
    spread = linear.pop("spread", 0.0)
    for seed in (1, 2, 3):
        base = 0.2 + spread * (seed - 2)
        make_run(tmp_path / "runs" / "cpu" / "off" / f"seed_{seed}", seed, 10, base, False)
        run = tmp_path / "runs" / "cpu" / "linear" / f"seed_{seed}"
        make_run(run, seed, 10, **{"gain": 0.3 + 0.01 * seed} | linear)  # type: ignore[arg-type]
    (tmp_path / "grid.tsv").write_text(GRID)
    grid = GRID + "M1\toff\t3\t{}\nM1\tlinear\t3\t{}\n"
    (tmp_path / "grid3.tsv").write_text(grid)
    frames = collect(read_grid(tmp_path / "grid3.tsv"), "cpu", tmp_path / "runs")
    write_collected(frames, tmp_path / "runs" / "cpu" / "_collected" / "m1")
    out = render(tmp_path, "m1")
    return answers(pd.read_csv(out / "tables" / "verdict.csv"))[0]


def test_the_verdict_names_what_decides(tmp_path: Path, make_run: MakeRun, render: Render) -> None:
    assert judge(tmp_path / "good", make_run, render).startswith("**Yes**, `linear` keeps all 7")
    incidents = judge(tmp_path / "oom", make_run, render, incidents={"oom": 1})
    rule = "no run is overlength, out of memory or non-finite"
    assert incidents == f"**No**: `linear` breaks the rule that {rule}."


def test_a_worse_arm_breaks_the_rule_on_accuracy(
    tmp_path: Path, make_run: MakeRun, render: Render
) -> None:
    """Differences −0.1, −0.1, −0.1 say nothing of their spread; −0.10, −0.11, −0.12 do."""
    equal = judge(tmp_path / "equal", make_run, render, gain=0.1)
    unclear = (
        "**Undecided**: the runs of `linear` cannot rule out that greedy test accuracy is lower."
    )
    assert equal == unclear


def test_a_loss_that_three_seeds_cannot_show_is_not_called_stable(
    tmp_path: Path, make_run: MakeRun, render: Render
) -> None:
    """Differences 0.15, −0.1, −0.35: their mean is beyond the margin, and their interval has 0."""
    wide = judge(tmp_path / "wide", make_run, render, gain=0.1, spread=0.25)
    unclear = (
        "**Undecided**: the runs of `linear` cannot rule out that greedy test accuracy is lower."
    )
    assert wide == unclear


def test_every_rule_can_be_turned_round() -> None:
    assert opposite("spikes of the loss are not more frequent").endswith("are more frequent")
    assert (
        opposite("validation accuracy does not fall deeper") == "validation accuracy falls deeper"
    )
    assert opposite("the entropy never collapses") == "the entropy collapses"
    assert opposite("no run is overlength").startswith("a run is")


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


def test_the_headline_is_the_experiments_endpoint(tmp_path: Path, make_run: MakeRun) -> None:
    for arm, seed in (("off", 1), ("off", 2), ("linear", 1), ("linear", 2)):
        make_run(
            tmp_path / "runs" / "cpu" / arm / f"seed_{seed}", seed, 10, 0.2 + 0.1 * (arm != "off")
        )
    params = Path(shutil.copytree(PARAMS, tmp_path / "params"))
    path = params / "study" / "M1.yaml"
    path.write_text(path.read_text() + "\nendpoint: val_auc\n")
    runs = collected(tmp_path) / "runs" / "cpu" / "_collected" / "m1"
    inputs = Inputs("cpu", ("M1",), runs, tmp_path / "models", tmp_path / "results", params)
    report = load_report("m1")
    tables = new_tables(report.artifacts(inputs.experiments, "table"), report.read(inputs))
    (row,) = (
        tables["arm_summary"].query("measure == 'val_auc' and arm == 'linear'").to_dict("records")
    )
    shown = tables["arm_main"].set_index("arm").loc["linear", "difference"]
    assert f"{row['diff']:+.3f}" in shown


@pytest.mark.parametrize(
    ("measure", "difference", "excludes", "holds"),
    [
        ("val_drawdown", 0.19, False, "undecided"),
        ("val_drawdown", 0.01, False, "yes"),
        ("val_drawdown", 0.19, True, "no"),
        ("val_drawdown", -0.19, True, "yes"),
        ("test_greedy", -0.19, False, "undecided"),
        ("test_greedy", -0.01, False, "yes"),
        ("loss_spikes", 1.0, False, "yes"),
    ],
)
def test_a_loss_of_accuracy_beyond_the_margin_is_undecided_where_it_is_not_shown(
    measure: str, difference: float, excludes: bool, holds: str
) -> None:
    rows = [
        {"measure": measure, "arm": "off", "mean": 0.1, "diff": math.nan},
        {"measure": measure, "arm": "linear", "mean": 0.1 + difference, "diff": difference}
        | {"diff_family_low": -1.0, "diff_family_high": 1.0, "interval_excludes_0": excludes},
    ]
    study: Any = SimpleNamespace(
        baseline="off", experiment=SimpleNamespace(endpoint="test_greedy", margin=0.02)
    )
    assert _difference(study, pd.DataFrame(rows), "linear", measure)["holds"] == holds

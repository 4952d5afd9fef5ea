import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from typer.testing import CliRunner

from refblend.cli.study import app
from refblend.errors import StudyError
from refblend.study.layout import M3_FIGURES, M3_TABLES
from refblend.study.report.m3 import report as m3_report
from refblend.study.report.m3.figures import FIGURES
from refblend.study.report.m3.report import write_m3_report
from refblend.study.runs.collect import collect, write_collected

MakeRun = Callable[..., Path]
PARAMS = Path(__file__).parents[2] / "params"
FRESH = (101, 102, 103)
GAINS = {"off": 0.20, "linear": 0.22, "linear_terminal": 0.45, "recommended": 0.30}


def grid(arms: tuple[str, ...], seeds: tuple[int, ...]) -> pd.DataFrame:
    rows = [("X", arm, str(seed), "{}") for arm in arms for seed in seeds]
    return pd.DataFrame(rows, columns=["experiment", "arm", "seed", "overrides"])


def make_runs(
    root: Path, make_run: MakeRun, arms: tuple[str, ...], seeds: tuple[int, ...]
) -> pd.DataFrame:
    for arm in arms:
        for seed in seeds:
            gain = GAINS[arm] + 0.01 * ((seed * 7 + len(arm)) % 3)
            make_run(root / "cpu" / arm / f"seed_{seed}", seed, 20, gain, arm != "off")
    return grid(arms, seeds)


def call(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output or result.exception
    return result.output


CONTRASTS = """experiment,contrast,arm,against,measure,pairs,diff,diff_low,diff_high,\
interval_excludes_0
A,entropy-aware − constant,linear,constant,test_greedy,5,0.01,-0.02,0.04,False
A,terminal − per token,linear_terminal,linear,test_greedy,5,0.20,0.15,0.25,True
A,terminal − per token,linear_terminal,linear,val_auc,5,0.90,0.80,1.00,True
A,judge − random control,linear,random,test_greedy,0,,,,
"""
RESOURCES = """arm,experiments,runs,finished,hours,energy_kwh,kg_co2e,resumed,step_seconds
off,A B C G H,5,5,1.0,0.010,0.004,0,2.0
linear_terminal,A B C G H,5,5,2.0,0.020,0.008,0,3.0
gae_off,G,3,3,0.5,,,0,2.0
len256_ctx1024,E,3,3,0.25,0.001,0.0005,0,2.0
"""


@pytest.fixture
def project(tmp_path: Path, make_run: MakeRun) -> Path:
    """Runs of M2 and M3, M2's results, and the recommendation made from them."""
    chosen = make_runs(tmp_path / "runs", make_run, ("off", "linear", "linear_terminal"), (1, 2, 3))
    write_collected(collect(chosen, "cpu", tmp_path / "runs"), tmp_path / "m2_frames")
    fresh = make_runs(tmp_path / "runs", make_run, ("off", "linear", "recommended"), FRESH)
    frames = collect(fresh, "cpu", tmp_path / "runs")
    memory = frames.runs[["arm", "seed"]].assign(step=1, metric="perf/max_memory_gb", value=2.0)
    metrics = pd.concat([frames.metrics, memory], ignore_index=True)
    write_collected(replace(frames, metrics=metrics), tmp_path / "frames")
    tables = tmp_path / "results" / "m2" / "tables"
    tables.mkdir(parents=True)
    (tables / "contrasts.csv").write_text(CONTRASTS)
    (tables / "costs_by_arm.csv").write_text(RESOURCES)
    (tables / "G_placement.md").write_text("| metric | best |\n|:--|:--|\n| a | b |\n")
    (tmp_path / "results" / "m1").mkdir()
    (tmp_path / "results" / "m1" / "metrics.json").write_text(
        json.dumps({"runs": {"planned": 6, "finished": 6}, "incidents": {"oom": 0}})
    )
    common = ["--scale", "cpu", "--params", PARAMS]
    out = tmp_path / "results" / "m3" / "recommended.yaml"
    call("recommend", "--collected", tmp_path / "m2_frames", *common, "--out", out)
    return tmp_path


def make_report(project: Path) -> Path:
    results = project / "results"
    arguments = ["--collected", project / "frames", "--m2", results / "m2", "--scale", "cpu"]
    overlay = results / "m3" / "recommended.yaml"
    out = results / "m3"
    call("m3", *arguments, "--params", PARAMS, "--recommended", overlay, "--out", out)
    return out


@pytest.fixture
def without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes seconds; captions are all that the report needs."""
    captions = dict.fromkeys(M3_FIGURES, "a caption")
    monkeypatch.setattr(m3_report, "write_m3_figures", lambda *_: captions)


def test_everything_declared_is_written(project: Path) -> None:
    out = make_report(project)
    for name in M3_TABLES:
        for suffix in ("csv", "md", "tex"):
            assert (out / "tables" / f"{name}.{suffix}").stat().st_size, name
    assert {path.stem for path in (out / "tables").iterdir()} == set(M3_TABLES)
    captions = json.loads((out / "figures" / "captions.json").read_text())
    assert tuple(FIGURES) == M3_FIGURES
    assert set(captions) == set(M3_FIGURES)
    for name in M3_FIGURES:
        assert (out / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<dc:date>" not in (out / "figures" / f"{name}.svg").read_text()
        assert "0123456789" in captions[name]

    first = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    make_report(project)
    assert {path: path.read_bytes() for path in first} == first, "the same input, the same bytes"


@pytest.mark.usefixtures("without_figures")
def test_confirmation_against_a_loop(project: Path) -> None:
    table = pd.read_csv(make_report(project) / "tables" / "confirmation.csv")
    frame = pd.read_parquet(project / "frames" / "metrics.parquet")
    test = frame[frame.metric == "test/greedy"].pivot(index="seed", columns="arm", values="value")
    for arm, against in (("recommended", "off"), ("recommended", "linear"), ("linear", "off")):
        row = table[
            (table.measure == "test_greedy") & (table.arm == arm) & (table.baseline == against)
        ].iloc[0]
        gaps = [test.loc[seed, arm] - test.loc[seed, against] for seed in FRESH]
        mean = sum(gaps) / 3
        half = stats.t.ppf(0.975, 2) * np.std(gaps, ddof=1) / 3**0.5
        assert (row["diff"], row.diff_low, row.diff_high) == pytest.approx(
            (mean, mean - half, mean + half), abs=1e-5
        )
        assert row.pairs == 3
        wins = sum(
            (test.loc[a, arm] > test.loc[b, against])
            + (abs(test.loc[a, arm] - test.loc[b, against]) < 1e-12) / 2
            for a in FRESH
            for b in FRESH
        )
        assert row.prob_improvement == pytest.approx(wins / 9, abs=0.06)
        assert row.smallest_p_holm == pytest.approx(0.75)  # three comparisons of three seeds
    assert set(table[table.measure == "test_greedy"].arm) == {"off", "linear", "recommended"}


@pytest.mark.usefixtures("without_figures")
def test_the_report_says_what_the_numbers_say(project: Path) -> None:
    out = make_report(project)
    text = (out / "report.md").read_text()
    assert "Recommended is arm `linear_terminal` of M2" in text
    assert "9 of 9 confirming runs finished, on seeds 101, 102, 103" in text
    assert "6 of 6 runs finished; incidents: oom 0." in text
    assert "strategy `linear`, w = w_max·(1 − ê), with w_max = 0.3 and τ = 1.0" in text
    decided, negative = text.split("### What is decided")[1].split("## Negative results")
    negative = negative.split("## Recommended defaults")[0]
    assert "terminal − per token (experiment A)" in decided
    assert "+0.200 [+0.150, +0.250] (n = 5)" in decided
    assert "0.900" not in decided
    assert "entropy-aware − constant" in negative
    assert "random control" not in text
    assert "flattered by the choice" in negative, "0.45 in M2, 0.30 on fresh seeds"
    assert "| a        | b      |" in text or "| a | b |" in text
    for name in M3_FIGURES:
        assert f"(figures/{name}.png)" in text
    assert "enable: true" in text.split("```yaml")[1]
    assert "{{" not in text
    assert "nan" not in text.lower().split()

    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics["runs"] == {"planned": 9, "finished": 9}
    assert metrics["recommended"]["arm"] == "linear_terminal"
    assert metrics["differences"]["recommended - off"]["n"] == 3
    assert metrics["test_greedy"]["recommended"] == pytest.approx(0.58, abs=0.02)


@pytest.mark.usefixtures("without_figures")
def test_costs_are_sums(project: Path) -> None:
    table = pd.read_csv(make_report(project) / "tables" / "costs.csv").set_index("what")
    assert table.loc["A", ["runs", "hours", "energy_kwh"]].tolist() == pytest.approx(
        [10, 3.0, 0.03]
    )
    assert np.isnan(table.loc["G", "energy_kwh"])
    m3_hours = sum(100 + seed for seed in FRESH) * 3 / 3600
    assert table.loc["M3", "hours"] == pytest.approx(m3_hours, rel=1e-4)
    assert table.loc["M3", "energy_kwh"] == pytest.approx(0.009)
    total = table.loc["all, measured"]
    assert total.runs == 5 + 5 + 3 + 3 + 9
    assert total.hours == pytest.approx(3.75 + m3_hours, rel=1e-4)
    assert total.kg_co2e == pytest.approx(0.004 + 0.008 + 0.0005 + 9 * 0.0004)
    assert total.note == "without the energy of G"
    # The plan of runs from their own measured costs gives their own hours back.
    assert table.loc["M3, `refblend plan`", "hours"] == pytest.approx(m3_hours, rel=1e-4)
    assert (
        "6–30 GPU-hours for 12–20 runs"
        in table.loc["the spec's estimate, section 10: its grid"].note
    )
    assert table.loc["the spec's estimate, section 10: our grid"].note.startswith("12.5–37.5 GPU")


@pytest.mark.usefixtures("without_figures")
def test_missing_runs_are_reported(project: Path) -> None:
    path = project / "runs" / "cpu" / "recommended" / "seed_102" / "summary.json"
    path.write_text(json.dumps({"status": "failed", "reason": "no memory left"}))
    fresh = collect(grid(("off", "linear", "recommended"), FRESH), "cpu", project / "runs")
    write_collected(fresh, project / "frames")
    out = make_report(project)
    text = (out / "report.md").read_text()
    assert "8 of 9 confirming runs finished" in text
    assert "`recommended` seed 102 is failed: no memory left." in text
    table = pd.read_csv(out / "tables" / "confirmation.csv")
    row = table[(table.measure == "test_greedy") & (table.arm == "recommended")].iloc[0]
    assert (row.n, row.pairs) == (2, 2)


def test_nothing_ran_and_m2_wrote_nothing(project: Path) -> None:
    empty = collect(grid(("off", "linear", "recommended"), FRESH), "cpu", project / "nowhere")
    write_collected(empty, project / "frames")
    for path in (project / "results" / "m2" / "tables").iterdir():
        path.unlink()
    out = make_report(project)
    text = (out / "report.md").read_text()
    assert "0 of 9 confirming runs finished" in text
    assert "could not be compared" in text
    assert "no measured costs" in text
    assert json.loads((out / "metrics.json").read_text())["differences"] == {}


@pytest.mark.usefixtures("without_figures")
def test_no_blend_is_recommended(project: Path, make_run: MakeRun) -> None:
    arms = ("off", "linear", "linear_terminal")
    for arm in arms:
        for seed in (1, 2, 3):
            gain = 0.6 if arm == "off" else 0.2
            make_run(project / "runs" / "cpu" / arm / f"seed_{seed}", seed, 20, gain, arm != "off")
    write_collected(collect(grid(arms, (1, 2, 3)), "cpu", project / "runs"), project / "m2_frames")
    overlay = project / "results" / "m3" / "recommended.yaml"
    common = ["--scale", "cpu", "--params", PARAMS]
    call("recommend", "--collected", project / "m2_frames", *common, "--out", overlay)
    text = (make_report(project) / "report.md").read_text()
    assert "No blend of M2 reached `off`" in text
    assert "Recommended is no blend (`enable: false`)" in text


@pytest.mark.usefixtures("without_figures")
def test_inputs_that_do_not_fit_are_refused(project: Path) -> None:
    results, overlay = project / "results", project / "results" / "m3" / "recommended.yaml"
    frames = collect(grid(("off",), (101,)), "cpu", project / "runs")
    with pytest.raises(StudyError, match="no tables of M2"):
        write_m3_report(frames, project / "no", "cpu", PARAMS, overlay, project / "out")
    with pytest.raises(StudyError, match="chosen at scale cpu, not smoke"):
        write_m3_report(frames, results / "m2", "smoke", PARAMS, overlay, project / "out")
    overlay.with_suffix(".json").unlink()
    with pytest.raises(StudyError, match=r"recommended\.json: cannot be read"):
        write_m3_report(frames, results / "m2", "cpu", PARAMS, overlay, project / "out")

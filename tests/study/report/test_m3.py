import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from scipy import stats

from refblend.errors import StudyError
from refblend.ppo.weights import STRATEGIES, Strategy
from refblend.study.recommend.choose import recommend
from refblend.study.recommend.overlay import write_recommendation
from refblend.study.report import engine
from refblend.study.report.engine import read_caption
from refblend.study.report.registry import Inputs, load_report
from refblend.study.runs.collect import Collected, collect, write_collected

MakeRun = Callable[..., Path]
Render = Callable[..., Path]
PARAMS = Path(__file__).parents[3] / "params"
FRESH = (101, 102, 103)
ARMS = ("off", "linear", "recommended")
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
    """Runs of M2 and M3, M2's tables, and the recommendation made from them."""
    chosen = make_runs(tmp_path / "runs", make_run, ("off", "linear", "linear_terminal"), (1, 2, 3))
    choose(tmp_path, collect(chosen, "cpu", tmp_path / "runs"))
    fresh = make_runs(tmp_path / "runs", make_run, ARMS, FRESH)
    frames = collect(fresh, "cpu", tmp_path / "runs")
    memory = frames.runs[["arm", "seed"]].assign(step=1, value=2.0)
    memory["metric"] = "perf/cpu_memory_used_gb"
    metrics = pd.concat([frames.metrics, memory], ignore_index=True)
    write_frames(tmp_path, replace(frames, metrics=metrics))
    tables = tmp_path / "results" / "cpu" / "m2" / "tables"
    tables.mkdir(parents=True)
    (tables / "contrasts.csv").write_text(CONTRASTS)
    (tables / "costs_by_arm.csv").write_text(RESOURCES)
    (tmp_path / "results" / "cpu" / "m1").mkdir()
    numbers = {"runs": 6, "missing": 0, "incidents": 0}
    (tmp_path / "results" / "cpu" / "m1" / "metrics.json").write_text(json.dumps(numbers))
    (tmp_path / "results" / "cpu" / "m1" / "tables").mkdir()
    rules = "rule,holds\n" + "".join(f"r{i},{'yes' if i else 'no'}\n" for i in range(7))
    (tmp_path / "results" / "cpu" / "m1" / "tables" / "verdict.csv").write_text(rules)
    return tmp_path


def choose(project: Path, runs: Collected, params: Path = PARAMS) -> None:
    """Write the recommendation that follows from runs of M2."""
    out = project / "results" / "cpu" / "m3" / "recommended.yaml"
    out.parent.mkdir(parents=True, exist_ok=True)
    write_recommendation(recommend(runs, "cpu", params), out)


def write_frames(project: Path, frames: Collected) -> None:
    write_collected(frames, project / "runs" / "cpu" / "_collected" / "m3")


def inputs_of(project: Path, scale: str = "cpu", params: Path = PARAMS) -> Inputs:
    return Inputs(
        scale=scale,
        study=(),
        collected=project / "runs" / "cpu" / "_collected" / "m3",
        models=project / "models",
        results=project / "results" / "cpu",
        params=params,
    )


def made(project: Path, **changed: Any) -> SimpleNamespace:
    """Tables, text and headline numbers; figures stay undrawn, as drawing takes seconds."""
    report, inputs = load_report("m3"), inputs_of(project, **changed)
    study = report.read(inputs)
    tables = dict(engine.new_tables(report.artifacts(inputs.experiments, "table"), study))
    captions = dict.fromkeys(report.names("figure", {}), "a caption")
    text = engine.render(report, inputs, study, tables, captions)
    return SimpleNamespace(
        tables=tables, text=text, metrics=report.single["metrics"](study, tables)
    )


def test_everything_registered_is_written_the_same_every_time(
    project: Path, render: Render
) -> None:
    report, out = load_report("m3"), render(project, "m3")
    for table in report.artifacts({}, "table"):
        assert (out / "tables" / f"{table.name}.csv").stat().st_size, table.name
        assert (out / "tables" / f"{table.name}.tex").exists() == table.shown
    text = (out / "report.md").read_text()
    for figure in report.artifacts({}, "figure"):
        svg = out / "figures" / f"{figure.name}.svg"
        assert "<dc:date>" not in svg.read_text()
        assert "0123456789" in read_caption(svg)
        assert f"(figures/{figure.name}.svg)" in text
    assert set(json.loads((out / "metrics.json").read_text())) >= {"diff", "missing"}
    first = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    render(project, "m3")
    assert {path: path.read_bytes() for path in first} == first, "the same input, the same bytes"


def test_confirmation_against_a_loop(project: Path) -> None:
    table = made(project).tables["confirmation"]
    frame = pd.read_parquet(inputs_of(project).collected / "metrics.parquet")
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


def test_the_first_page_answers_the_question(project: Path) -> None:
    result = made(project)
    first = result.text.split("## Method")[0]
    assert "**Recommended: arm `linear_terminal` of M2**: strategy `linear`" in first
    assert "w = w_max·(1 − ê), with `max_weight` 0.3, `entropy_high_threshold` 1.0" in first
    assert "**Confirmed** on fresh seeds: `recommended` − `off` is +0.1" in first
    assert "biased upwards by the selection" in first, "0.45 in M2, 0.30 on fresh seeds"
    assert "9 of 9 confirming runs finished, on seeds 101, 102, 103" in first
    assert "enable: true" in first.split("```yaml")[1]
    assert "nan" not in result.text.lower().split()
    verdict = result.tables["verdict"]
    assert list(zip(verdict.arm, verdict.against, verdict.says, strict=True)) == [
        ("recommended", "off", "better"),
        ("recommended", "linear", "better"),
        ("linear", "off", "undecided"),
    ]
    assert result.metrics["accuracy"] == pytest.approx(0.58, abs=0.02)
    assert result.metrics["diff"] == pytest.approx(0.1, abs=0.01)
    assert (result.metrics["runs"], result.metrics["missing"]) == (9, 0)


def test_what_is_decided_and_what_is_not(project: Path) -> None:
    text = made(project).text
    assert "6 of 6 runs finished with 0 incidents; 6 of 7 rules of stability were kept." in text
    decided, rest = text.split("### Decided")[1].split("### Not decided")
    undecided = rest.split("## Runs and incidents")[0]
    assert "terminal − per token (experiment A)" in decided
    assert "+0.200 [+0.150, +0.250] (n = 5)" in decided
    assert "0.900" not in decided, "by another measure than the endpoint"
    assert "entropy-aware − constant" in undecided
    assert "random control" not in text, "it has no difference"


@pytest.mark.parametrize(
    ("gains", "answer"),
    [
        ({"off": 0.3, "recommended": 0.1}, "**Refuted** on fresh seeds"),
        ({"off": 0.3, "recommended": 0.305}, "**Neither confirmed nor refuted** on fresh seeds"),
    ],
)
def test_a_recommendation_that_is_not_confirmed(
    project: Path, make_run: MakeRun, gains: dict[str, float], answer: str
) -> None:
    for place, seed in enumerate(FRESH):
        for arm, gain in gains.items():
            noise = 0.02 * (place - 1) if arm == "off" else 0.0
            folder = project / "runs" / "cpu" / arm / f"seed_{seed}"
            make_run(folder, seed, 20, gain + noise, arm != "off")
    write_frames(project, collect(grid(ARMS, FRESH), "cpu", project / "runs"))
    assert answer in made(project).text


def test_costs_are_sums(project: Path) -> None:
    table = made(project).tables["costs"].set_index("what")
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
        "6–30 GPU-hours for 12–20 runs" in table.loc["estimate before the study: planned grid"].note
    )
    assert table.loc["estimate before the study: this grid"].note.startswith("12.5–37.5 GPU")
    assert table.loc["A"].note == "with M1's runs"
    assert table.loc["E"].note == ""


def test_missing_runs_are_reported(project: Path) -> None:
    path = project / "runs" / "cpu" / "recommended" / "seed_102" / "summary.json"
    path.write_text(json.dumps({"status": "failed", "reason": "no memory left"}))
    write_frames(project, collect(grid(ARMS, FRESH), "cpu", project / "runs"))
    result = made(project)
    assert "8 of 9 confirming runs finished" in result.text
    assert "`recommended` seed 102 is failed: no memory left." in result.text
    table = result.tables["confirmation"]
    row = table[(table.measure == "test_greedy") & (table.arm == "recommended")].iloc[0]
    assert (row.n, row.pairs) == (2, 2)


def test_nothing_ran_and_m2_wrote_nothing(project: Path, render: Render) -> None:
    write_frames(project, collect(grid(ARMS, FRESH), "cpu", project / "nowhere"))
    for path in (project / "results" / "cpu" / "m2" / "tables").iterdir():
        path.unlink()
    (project / "results" / "cpu" / "m1" / "metrics.json").unlink()
    out = render(project, "m3")
    text = (out / "report.md").read_text()
    assert "**Not tested**" in text
    assert "0 of 9 confirming runs finished" in text
    assert "could not be compared" in text
    assert "no measured costs" in text
    assert "M1 has no record here." in text
    assert "diff" not in json.loads((out / "metrics.json").read_text())


def test_no_blend_is_recommended(project: Path, make_run: MakeRun) -> None:
    arms = ("off", "linear", "linear_terminal")
    for arm in arms:
        for seed in (1, 2, 3):
            gain = 0.6 if arm == "off" else 0.2
            make_run(project / "runs" / "cpu" / arm / f"seed_{seed}", seed, 20, gain, arm != "off")
    choose(project, collect(grid(arms, (1, 2, 3)), "cpu", project / "runs"))
    text = made(project).text
    assert "**Recommended: no blending.** No blend of M2 was ahead of `off`" in text
    assert "no difference is expected" in text


def test_inputs_that_do_not_fit_are_refused(project: Path) -> None:
    with pytest.raises(StudyError, match="was chosen at scale cpu, not smoke"):
        made(project, scale="smoke")
    record = project / "results" / "cpu" / "m3" / "recommended.json"
    record.rename(project / "kept.json")
    with pytest.raises(StudyError, match=r"recommended\.json: cannot be read"):
        made(project)
    (project / "kept.json").rename(record)
    (project / "results" / "cpu" / "m2").rename(project / "elsewhere")
    with pytest.raises(StudyError, match="m2: has no tables"):
        made(project)


def test_arms_letters_and_a_strategy_of_a_users_own(
    project: Path, make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names of experiments, arms and strategies are not built in."""
    monkeypatch.setitem(
        STRATEGIES, "toy", Strategy("toy", lambda h, p, at: 0.1, ("max_weight",), "w = 0.1")
    )
    params = tmp_path / "own"
    (params / "study").mkdir(parents=True)
    for name in ("ppo.yaml", "scale", "scoring", "workflow.yaml"):
        if (PARAMS / name).exists():
            (params / name).symlink_to(PARAMS / name)
    blend = "algorithm.ref_quality_score"
    plain, usual = {f"{blend}.enable": False}, {f"{blend}.strategy": "cosine"}
    common = {"question": "Which?", "baseline": "plain"}
    documents = {
        "Q": {"title": "Try", "seeds": {"cpu": [1, 2, 3]}}
        | {"arms": {"plain": plain, "wave": usual, "flat": {f"{blend}.strategy": "toy"}}},
        "Z": {"title": "Check", "milestone": "m3", "seeds": {"cpu": list(FRESH)}}
        | {"arms": {"plain": plain, "wave": usual, "best": {"overlay": "r/{scale}.yaml"}}}
        | {"contrasts": [{"name": "best − wave", "pairs": {"best": "wave"}}]},
    }
    for name, document in documents.items():
        text = yaml.safe_dump(common | document)
        (params / "study" / f"{name}.yaml").write_text(text)
    own = {"plain": 0.2, "wave": 0.25, "flat": 0.5, "best": 0.4}
    for arm, gain in own.items():
        for seed in (1, 2, 3, *FRESH):
            folder = project / "runs" / "cpu" / arm / f"seed_{seed}"
            make_run(folder, seed, 20, gain + 0.01 * (seed % 3), arm != "plain")
    explored = collect(grid(("plain", "wave", "flat"), (1, 2, 3)), "cpu", project / "runs")
    choose(project, explored, params)
    frames = collect(grid(("plain", "wave", "best"), FRESH), "cpu", project / "runs")
    write_frames(project, frames)
    result = made(project, params=params)
    assert (
        "**Recommended: arm `flat` of M2**: strategy `toy`, w = 0.1, with `max_weight` 0.3"
        in result.text
    )
    verdict = result.tables["verdict"]
    assert list(zip(verdict.arm, verdict.against, strict=True)) == [
        ("best", "plain"),
        ("best", "wave"),
        ("wave", "plain"),
    ]
    assert {"accuracy", "diff", "low", "high"} <= set(result.metrics)


def test_the_headline_is_the_experiments_endpoint(project: Path, tmp_path: Path) -> None:
    params = Path(shutil.copytree(PARAMS, tmp_path / "params"))
    path = params / "study" / "M3.yaml"
    path.write_text(path.read_text() + "\nendpoint: val_auc\n")
    found = made(project, params=params)
    rows = found.tables["confirmation"].query("measure == 'val_auc' and baseline == 'off'")
    shown = found.tables["confirmation_main"].set_index(["arm", "against"])
    for row in rows.dropna(subset="diff").to_dict("records"):
        assert f"{row['diff']:+.3f}" in shown.loc[(row["arm"], "off"), "difference"]
    assert len(rows.dropna(subset="diff")) == 2

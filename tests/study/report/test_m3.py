import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import recompute
import yaml
from m3_project import (
    ARMS,
    FRESH,
    PARAMS,
    MakeRun,
    choose,
    grid,
    inputs_of,
    made,
    make_project,
    write_frames,
)
from scipy import stats

from refblend.errors import StudyError
from refblend.ppo.weights import STRATEGIES, Strategy
from refblend.study.report.engine import read_caption
from refblend.study.report.registry import load_report
from refblend.study.runs.collect import collect

Render = Callable[..., Path]


@pytest.fixture
def project(tmp_path: Path, make_run: MakeRun) -> Path:
    return make_project(tmp_path, make_run)


def test_everything_registered_is_written_the_same_every_time(
    project: Path, render: Render
) -> None:
    report, out = load_report("m3"), render(project, "m3", params=PARAMS)
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
    render(project, "m3", params=PARAMS)
    assert {path: path.read_bytes() for path in first} == first, "the same input, the same bytes"


def test_confirmation_against_a_loop(project: Path) -> None:
    table = made(project).tables["confirmation"]
    frame = pd.read_parquet(inputs_of(project).collected / "metrics.parquet")
    test = frame[frame.metric == "test/greedy"].pivot(index="seed", columns="arm", values="value")
    for arm, against in (("challenger", "off"), ("challenger", "linear"), ("linear", "off")):
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
    assert set(table[table.measure == "test_greedy"].arm) == {"off", "linear", "challenger"}


def test_the_first_page_answers_the_question(project: Path) -> None:
    result = made(project)
    first = result.text.split("## Method")[0]
    assert "**Recommended: arm `linear_terminal` of M2**: strategy `linear`" in first
    assert "w = w_max·(1 − ê), with `max_weight` 0.3, `entropy_high_threshold` 1.0" in first
    assert "**Undecided**: on fresh seeds `challenger` − `off` is +0.1" in first
    assert "with so few seeds no difference could have been (smallest p 0.1)" in first
    assert "biased upwards by the selection" in result.text, "0.45 in M2, 0.30 on fresh seeds"
    assert "9 of 9 confirming runs finished, on seeds 101 to 103" in first
    assert "sets the blend above" in result.text
    assert "nan" not in result.text.lower().split()
    shown = result.tables["verdicts_main"]
    assert list(shown["treated − reference"]) == ["challenger − off ", "challenger − linear "]
    assert list(shown.primary) == [True, False]
    assert set(shown.verdict) == {"undecided"}, "three seeds cannot decide"
    assert result.metrics["accuracy"] == pytest.approx(0.48, abs=0.02)
    assert result.metrics["diff"] == pytest.approx(0.1, abs=0.01)
    assert (result.metrics["runs"], result.metrics["missing"]) == (9, 0)


def test_what_is_decided_and_what_is_not(project: Path) -> None:
    text = made(project).text
    assert "6 of 6 runs finished with 0 incidents; 6 of 7 rules of stability were kept." in text
    assert (
        "| A | judge − no judge | linear_terminal − off | test accuracy (sampled) "
        "| +0.200 [+0.150, +0.250] (n = 10 pairs) | better |"
    ) in text
    assert "| linear_auto − yoked_mean | test accuracy (sampled) | +0.003" in text
    assert "terminal − per token" not in text, "exploratory"
    (undecided,) = re.findall(r"^- What is undecided, .*: (.*)$", text, re.M)
    assert "`linear` − `constant` (A, test accuracy (sampled)) 35; " in undecided
    assert "`challenger` − `off` (M3, test accuracy (sampled)) " in undecided
    assert "`challenger` − `linear` (M3, exploratory, test accuracy (greedy)) " in undecided
    assert "linear_auto" not in undecided


MANY = tuple(range(101, 109))


@pytest.mark.parametrize(
    ("gain", "noise", "answer"),
    [
        (0.4, 0.02, "**Better**: on fresh seeds `challenger` − `off` is +0."),
        (0.2, 0.02, "**Worse**: on fresh seeds `challenger` − `off` is -0."),
        (0.3, 0.002, "**Equivalent**: on fresh seeds `challenger` − `off` is "),
        (0.31, 0.05, "**Undecided**: on fresh seeds `challenger` − `off` is "),
    ],
)
def test_the_answer_is_the_verdict_that_other_code_finds(
    project: Path, make_run: MakeRun, gain: float, noise: float, answer: str
) -> None:
    """scripts/recompute.py, which uses pandas and scipy alone, is the oracle."""
    rng = np.random.default_rng(1)
    for arm, mean in {"off": 0.3, "linear": 0.3, "challenger": gain}.items():
        for seed in MANY:
            folder = project / "runs" / "cpu" / arm / f"seed_{seed}"
            make_run(folder, seed, 20, mean + noise * rng.uniform(-1, 1), arm != "off")
    frames = collect(grid(ARMS, MANY), "cpu", project / "runs")
    write_frames(project, frames)
    result = made(project)
    assert answer in result.text
    keys = ["arm", "seed", "step"]
    runs = frames.metrics.pivot(index=keys, columns="metric", values="value").reset_index()
    table = result.tables["verdicts"]
    values = recompute.endpoints(runs)
    found = recompute.recomputed(table, values, {"M3": list(values.index)})
    assert recompute.differences(table, found) == []
    assert recompute.answer_problems("M3", result.text, table, found) == []
    assert result.metrics["diff"] == pytest.approx(found.estimate.iloc[0], abs=1e-4)
    assert result.metrics["low"] == pytest.approx(found.low.iloc[0], abs=1e-4)


def test_costs_are_sums(project: Path) -> None:
    table = made(project).tables["costs"].set_index("what")
    assert table.loc["A", ["runs", "hours", "energy_kwh"]].tolist() == pytest.approx(
        [10, 3.0, 0.03]
    )
    assert np.isnan(table.loc["G", "energy_kwh"])
    m3_hours = (sum(100 + seed for seed in FRESH) * 3 - (100 + 101)) / 3600  # M2 has one of them
    assert table.loc["M3", "hours"] == pytest.approx(m3_hours, rel=1e-4)
    assert table.loc["M3", "energy_kwh"] == pytest.approx(0.008)
    total = table.loc["all, measured"]
    assert total.runs == 5 + 5 + 3 + 3 + 8
    assert total.hours == pytest.approx(3.75 + m3_hours, rel=1e-4)
    assert total.kg_co2e == pytest.approx(0.004 + 0.008 + 0.0005 + 8 * 0.0004)
    assert total.note == "without the energy of G"
    # The plan of runs from their own measured costs gives their own hours back.
    assert table.loc["M3, `refblend plan`", "hours"] == pytest.approx(m3_hours, rel=1e-4)
    assert (
        "6–30 GPU-hours for 12–20 runs" in table.loc["estimate before the study: planned grid"].note
    )
    assert table.loc["estimate before the study: this grid"].note.startswith("12–36 GPU")
    assert table.loc["A"].note == "with M1's runs of off"
    assert table.loc["M3"].note == "without 1 that M2 has; with M1's runs of off, linear"
    assert table.loc["E"].note == ""


def test_missing_runs_are_reported(project: Path) -> None:
    path = project / "runs" / "cpu" / "challenger" / "seed_102" / "summary.json"
    path.write_text(json.dumps({"status": "failed", "reason": "no memory left"}))
    write_frames(project, collect(grid(ARMS, FRESH), "cpu", project / "runs"))
    result = made(project)
    assert "8 of 9 confirming runs finished" in result.text
    assert "- `challenger`, seed 102: **failed**, no memory left" in result.text
    table = result.tables["confirmation"]
    row = table[(table.measure == "test_greedy") & (table.arm == "challenger")].iloc[0]
    assert (row.n, row.pairs) == (2, 2)


def test_nothing_ran_and_m2_wrote_nothing(project: Path, render: Render) -> None:
    write_frames(project, collect(grid(ARMS, FRESH), "cpu", project / "nowhere"))
    for path in (project / "results" / "cpu" / "m2" / "tables").iterdir():
        path.unlink()
    (project / "results" / "cpu" / "m1" / "metrics.json").unlink()
    out = render(project, "m3", params=PARAMS)
    text = (out / "report.md").read_text()
    assert "**Not tested**" in text
    assert "0 of 9 confirming runs finished" in text
    assert "there are no finished runs for `challenger` − `off` by test accuracy (sampled)" in text
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
    assert (
        "**Recommended: no blending.** No candidate blend of M2 had a higher mean than `off`"
        in text
    )
    assert "`challenger` is `linear`." in text, "the best blend is tested all the same"


def test_inputs_that_do_not_fit_are_refused(project: Path) -> None:
    with pytest.raises(StudyError, match="was chosen at scale cpu, not smoke"):
        made(project, scale="smoke", folder="cpu")
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
        | {"contrasts": [{"name": "best − wave", "primary": True, "pairs": {"best": "wave"}}]},
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
    assert "**Undecided**: on fresh seeds `best` − `wave` is +0.150" in result.text
    compared = result.tables["confirmation"].query("measure == 'test_greedy' and n == n")
    compared = compared.dropna(subset="diff")
    assert set(zip(compared.arm, compared.baseline, strict=True)) == {
        ("best", "plain"),
        ("best", "wave"),
        ("wave", "plain"),
    }
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


def test_nothing_is_confirmed_without_a_primary_contrast(project: Path, tmp_path: Path) -> None:
    params = Path(shutil.copytree(PARAMS, tmp_path / "params"))
    path = params / "study" / "M3.yaml"
    path.write_text(path.read_text().replace("primary: true", "primary: false"))
    found = made(project, params=params)
    assert "**Not tested**: the experiment declares no primary contrast." in found.text
    assert "diff" not in found.metrics


def test_what_is_left_of_the_advantage_on_fresh_seeds(project: Path) -> None:
    """The mean over the second half's validations, by a loop over the frames."""
    text = made(project).text
    (line,) = [row for row in text.splitlines() if row.startswith("| `linear_terminal` − `off` |")]

    def advantage(metrics: pd.DataFrame, arm: str, seeds: tuple[int, ...]) -> float:
        greedy = metrics[metrics.metric.str.startswith("val-core/") & (metrics.step >= 10)]
        greedy = greedy[greedy.metric.str.endswith("/acc/mean@1")]
        greedy = greedy[~greedy.metric.str.contains("sanity")]
        means = greedy.groupby(["arm", "seed"])["value"].mean()
        return float(np.mean([means[arm, seed] - means["off", seed] for seed in seeds]))

    fresh = pd.read_parquet(inputs_of(project).collected / "metrics.parquet")
    arms = ("off", "linear", "linear_terminal")
    chosen = collect(grid(arms, (1, 2, 3)), "cpu", project / "runs").metrics
    _, _, before, after, _ = (cell.strip() for cell in line.split("|"))
    shown = [float(cell.split(" [")[0]) for cell in (before, after)]
    known = [advantage(chosen, "linear_terminal", (1, 2, 3)), advantage(fresh, "challenger", FRESH)]
    assert shown == pytest.approx(known, abs=6e-4), "three decimals are shown"
    assert before.endswith("(3 pairs)")


def test_arms_that_are_younger_than_the_choice_are_named(project: Path) -> None:
    path = project / "results" / "cpu" / "m3" / "recommended.json"
    record = json.loads(path.read_text())
    assert "exp_terminal" in record["dropped"]
    del record["dropped"]["exp_terminal"]
    path.write_text(json.dumps(record))
    dropped = made(project).tables["dropped"].set_index("arm").reason
    assert dropped["exp_terminal"] == "added to the design after the choice"
    assert dropped["shuffled_terminal"] == record["dropped"]["shuffled_terminal"]
    assert "linear_terminal" not in dropped, "a candidate"

"""R's report: its own verdicts, and which of them carry over from the scale beside it."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import recompute
import yaml
from scipy import stats

from refblend.errors import StudyError
from refblend.study.design.grid import read_grid
from refblend.study.report import engine
from refblend.study.report.publish import made_from, redraw_reports, write_verdicts
from refblend.study.report.r import figures
from refblend.study.report.registry import Inputs, load_report
from refblend.study.report.verdicts import read_verdicts
from refblend.study.runs.archive import write_archive
from refblend.study.runs.collect import Collected, collect, write_collected

MakeRun = Callable[..., Path]
PARAMS = Path(__file__).parents[3] / "params"
ARMS = ("off", "linear", "constant_terminal", "constant_terminal_shuffled")


def inputs_of(root: Path, params: Path = PARAMS) -> Inputs:
    results = root / "results" / "smollm"
    collected = root / "runs" / "smollm" / "_collected" / "r"
    return Inputs("smollm", ("R",), collected, root / "models" / "smollm", results, params)


def write_runs(
    root: Path, make_run: MakeRun, gains: dict[str, list[float]], params: Path = PARAMS
) -> Collected:
    """Runs of every arm, a seed for each of its gains, collected and in an archive."""
    rows = [(arm, seed) for arm in ARMS for seed in range(1, len(gains[arm]) + 1)]
    results = root / "results" / "smollm"
    results.mkdir(parents=True)
    lines = "".join(f"R\t{arm}\t{seed}\t{{}}\n" for arm, seed in rows)
    (results / "grid.tsv").write_text(f"experiment\tarm\tseed\toverrides\n{lines}")
    for arm, seed in rows:
        folder = root / "runs" / "smollm" / arm / f"seed_{seed}"
        make_run(folder, seed, 10, gains[arm][seed - 1], arm != "off")
    frames = collect(read_grid(results / "grid.tsv"), "smollm", root / "runs")
    write_collected(frames, inputs_of(root).collected)
    write_archive(frames, results)
    write_verdicts("smollm", results, params)
    return frames


def made(root: Path, params: Path = PARAMS) -> SimpleNamespace:
    """Tables, text and headline numbers; figures stay undrawn."""
    report, inputs = load_report("r"), inputs_of(root, params)
    study = report.read(inputs)
    tables = dict(engine.new_tables(report.artifacts(inputs.experiments, "table"), study))
    captions = dict.fromkeys(report.names("figure", inputs.experiments), "a caption")
    text = engine.render(report, inputs, study, tables, captions)
    numbers = report.single["metrics"](study, tables)
    return SimpleNamespace(tables=tables, text=text, page=text.split("\n## ")[0], metrics=numbers)


SPREAD = [-0.02, 0.0, 0.02]


@pytest.fixture
def project(tmp_path: Path, make_run: MakeRun) -> Path:
    """Three seeds of each arm, every arm 0.1 above the one before it."""
    gains = {arm: [0.1 + 0.1 * place + x for x in SPREAD] for place, arm in enumerate(ARMS)}
    write_runs(tmp_path, make_run, gains)
    return tmp_path


def write_beside(root: Path, changes: list[dict[str, object]]) -> pd.DataFrame:
    """Verdicts of scale cpu: a row of R's own for each change, as experiment A's."""
    row = read_verdicts(root / "results" / "smollm" / "verdicts.csv").iloc[0]
    table = pd.DataFrame([dict(row) | {"experiment": "A"} | change for change in changes])
    (root / "results" / "cpu").mkdir(exist_ok=True)
    table.to_csv(root / "results" / "cpu" / "verdicts.csv", index=False)
    return table


def test_everything_registered_is_drawn_from_the_archive(
    project: Path, quality_paths: list[Path]
) -> None:
    results = inputs_of(project).results
    shutil.copytree(quality_paths[0].parent, results / "quality")
    write_beside(project, [{"verdict": "better", "estimate": 0.034, "low": 0.01, "high": 0.06}])
    out = results / "r"
    assert list(redraw_reports("smollm", results, PARAMS)) == [
        results / "verdicts.csv", out / "report.md",
    ]  # fmt: skip
    report, text = load_report("r"), (out / "report.md").read_text()
    for table in report.artifacts({}, "table"):
        assert (out / "tables" / f"{table.name}.csv").stat().st_size, table.name
        assert (out / "tables" / f"{table.name}.tex").exists() == table.shown
    for figure in report.artifacts({}, "figure"):
        assert f"(figures/{figure.name}.svg)" in text
    assert [path.name for path in (out / "figures").glob("*.png")] == ["verdicts.png"]
    caption = engine.read_caption(out / "figures" / "verdicts.svg")
    assert "of R, treated − reference, each above the same contrast at scale cpu, " in caption
    assert "Commit 0123456789." in caption
    assert {"diff", "missing"} <= set(json.loads((out / "metrics.json").read_text()))
    summary = pd.read_csv(out / "tables" / "arm_summary.csv").query("measure == 'val_gain'")
    assert summary.set_index("arm")["n"].to_dict() == dict.fromkeys(ARMS, 3)
    assert summary.set_index("arm")["diff"][ARMS[2]].round(6) == 0.2


def test_m1_keeps_its_own_report(project: Path) -> None:
    r, m1 = load_report("r"), load_report("m1")
    assert (m1.name, "verdict" in m1.names("table", {})) == ("m1", True)
    assert "verdict" not in r.names("table", {})
    assert "beside" not in m1.names("table", {})
    assert {"incidents", "stability", "judge_in_training", "final_accuracy"} <= set(
        r.names("table", {})
    )
    assert "stability were kept" not in made(project).text


def test_with_few_seeds_the_first_page_says_that_nothing_can_be_decided(project: Path) -> None:
    result = made(project)
    assert result.text.startswith("# R: A real pretrained model (scale `smollm`)\n\nWith SmolLM2")
    for sentence in (
        "Of 3 primary contrasts 0 are better, 0 worse, 0 equivalent and 3 undecided, with a margin "
        "of ±0.02 and a level of 0.05 for all of them together. 3 of them could not have been "
        "called better or worse with these seeds, whatever the effect",
        "12 of 12 runs finished. Without a judge (`off`) the greedy test accuracy reaches 0.370",
        "**Does the judge's score help?** No blend of it is shown to be better than none.",
        "- **Undecided**: `linear` − `off` is +0.100 [+0.100, +0.100] (n = 3 pairs) by test "
        "accuracy (sampled). Neither a difference nor equivalence within ±0.02 is shown, and with "
        "so few seeds no difference could have been (smallest p 0.75); a decision would take ",
        "**Is it the judge's judgement?** That the judgement counts is not shown.",
        "- **Undecided**: `constant_terminal` − `constant_terminal_shuffled` is -0.100 ",
    ):
        assert sentence in result.page, sentence
    assert result.metrics["diff"] == pytest.approx(0.1)
    assert (result.metrics["runs"], result.metrics["missing"]) == (12, 0)
    for word in ("nan", "none", "<na>"):
        assert word not in re.sub(r"better than none|`none`", "", result.page).lower().split()


def params_with(root: Path, **changes: object) -> Path:
    """The project's parameters with another R.yaml."""
    shutil.copytree(PARAMS, root / "params")
    path = root / "params" / "study" / "R.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | changes))
    return root / "params"


@pytest.mark.parametrize(
    ("gain", "answers"),
    [
        (0.5, ["shown to be better than no blend: `linear`.", "**Better**: `linear` − `off`"]),
        (0.1, ["Shown to be worse: `linear`.", "**Worse**: `linear` − `off`"]),
        (0.3, ["No blend of it is shown to be better than none.", "**Equivalent**: `linear`"]),
    ],
)
def test_the_answers_are_the_verdicts_that_other_code_finds(
    tmp_path: Path, make_run: MakeRun, gain: float, answers: list[str]
) -> None:
    """scripts/recompute.py, which uses pandas and scipy alone, is the oracle."""
    rng = np.random.default_rng(3)
    params = params_with(tmp_path, seeds={"smollm": list(range(1, 9))})
    means = dict.fromkeys(ARMS, 0.3) | {"linear": gain}
    write_runs(
        tmp_path,
        make_run,
        {arm: list(mean + rng.normal(0, 0.004, 8)) for arm, mean in means.items()},
        params,
    )
    result = made(tmp_path, params)
    for answer in answers:
        assert answer.lower() in result.page.lower()
    assert "could not have been" not in result.page
    (tmp_path / "results" / "smollm" / "r").mkdir()
    report = tmp_path / "results" / "smollm" / "r" / "report.md"
    report.write_text(result.text)
    assert recompute.main(tmp_path / "results" / "smollm") == 0
    report.write_text(result.text.replace("`linear` − `off` is", "`off` − `linear` is"))
    assert recompute.main(tmp_path / "results" / "smollm") == 1


def test_another_kind_of_problem_is_measured_before_and_after(project: Path) -> None:
    result = made(project)
    table = result.tables["outside_test"].set_index("arm")
    assert list(table.index) == list(ARMS)
    half = stats.t.ppf(0.975, 2) * np.std(SPREAD, ddof=1) / 3**0.5
    assert table.change["linear"] == f"+0.200 [{0.2 - half:+.3f}, {0.2 + half:+.3f}]"
    assert (table.n["off"], table.before["off"]) == (3, pytest.approx(0.3))
    assert "problems of reasoning-gym's `gsm_symbolic`, on which nothing trains" in result.text
    inputs = inputs_of(project)
    frames = collect(
        read_grid(project / "results" / "smollm" / "grid.tsv"), "smollm", project / "runs"
    )
    without = frames.metrics[~frames.metrics.metric.str.contains("sanity")]
    write_collected(replace(frames, metrics=without), inputs.collected)
    assert "Another kind of problem" not in made(project).text


def test_without_the_other_scale_s_verdicts_the_report_says_so(project: Path) -> None:
    result = made(project)
    assert (
        "Experiment R (a real pretrained model, scale `smollm`) is set beside scale `cpu`, but "
        "there are no verdicts to compare with yet (`results/cpu/verdicts.csv`): whether its "
        "findings carry over is not known."
    ) in result.text
    assert result.tables["beside"].empty
    assert "the finding" not in result.text


def test_another_scale_s_verdicts_make_another_report(project: Path) -> None:
    report, inputs = load_report("r"), inputs_of(project)
    marks = [made_from(report, inputs)]
    for verdict in ("better", "worse"):
        write_beside(project, [{"verdict": verdict}])
        marks.append(made_from(report, inputs))
    assert len(set(marks)) == 3


def test_runs_of_different_models_are_not_compared(project: Path) -> None:
    report, inputs = load_report("r"), inputs_of(project)
    runs = pd.read_csv(inputs.collected / "runs.csv", keep_default_na=False)
    own = runs.arm.map(lambda arm: "actor 22222222" if arm == "linear" else "actor 11111111")
    runs.assign(models=own).to_csv(inputs.collected / "runs.csv", index=False)
    expected = "R: linear − off compares runs of different models, actor"
    with pytest.raises(StudyError, match=expected):
        report.read(inputs)


def test_what_a_scale_can_detect_is_not_said_of_the_other(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three seeds here, which can decide nothing, beside twenty that detect 0.03."""
    shown: list[pd.DataFrame] = []
    monkeypatch.setattr(figures, "verdict_forest", lambda table, names: shown.append(table))
    write_beside(project, [{"n": 20, "detectable": 0.03, "least_p_adjusted": 0.001}])
    result = made(project)
    figures.forest(load_report("r").read(inputs_of(project)), result.tables)
    here, there = shown[0].iloc[0], shown[0].iloc[1]
    assert here.least_p_adjusted > here.alpha
    assert not there.least_p_adjusted > here.alpha
    assert (there.detectable, there.endpoint) == (0.03, here.endpoint)
    assert there.detectable != here.detectable


def test_the_warm_start_is_said_to_be_tested_on_fewer_problems(project: Path) -> None:
    quality = project / "models" / "smollm" / "quality"
    quality.mkdir(parents=True)
    (quality / "actor.json").write_text(json.dumps({"greedy": 0.1875, "problems": 256}))
    on = "the first 256 problems of the test set"
    assert f"from 0.188 before training (on {on}, by the strict rule)." in made(project).page

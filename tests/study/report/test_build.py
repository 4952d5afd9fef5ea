"""Every report is built from made runs: its files, its page, and what it leads with."""

import json
import re
import shutil
from pathlib import Path

import m2_frames
import matplotlib.pyplot as plt
import pandas as pd
import pytest
import report_page
import scoring_reports
import yaml

from refblend.errors import StudyError
from refblend.study.design.grid import build_grid, write_grid
from refblend.study.design.spec import experiments_of, load_experiments
from refblend.study.report import style
from refblend.study.report.build import Archive, Place, write_report, write_scoring
from refblend.study.runs.collect import write_collected

PARAMS = Path(__file__).parents[3] / "params"
MOST_WORDS = {"m1": 1200, "m2": 4000, "m3": 4000, "scoring": 1200}


def small(tmp_path: Path) -> Path:
    """The project's parameters with three seeds of each arm at scale cpu, on one warm start."""
    params = Path(shutil.copytree(PARAMS, tmp_path / "params"))
    for path in (params / "study").glob("*.yaml"):
        spec = yaml.safe_load(path.read_text())
        seeds = {"cpu": [101, 102, 103]} if spec.get("milestone") == "m3" else {"cpu": [1, 2, 3]}
        if "cpu" in spec["seeds"]:
            spec |= {"seeds": seeds, "arm_seeds": {}}
            path.write_text(yaml.safe_dump(spec, sort_keys=False))
    return params


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """An archive of made runs of all milestones at scale cpu, with the recommendations."""
    root = tmp_path_factory.mktemp("study")
    params = small(root)
    place = Place("cpu", root / "results" / "cpu", root / "models" / "cpu", params)
    specs = load_experiments(params)
    names = [name for m in ("m1", "m2", "m3") for name in experiments_of(m, params, "cpu")]
    grid = build_grid(names, "cpu", params)
    write_grid(grid, place.results / "grid.tsv")
    runs = dict.fromkeys(zip(grid.arm, grid.seed.astype(int), strict=True))
    costs = {arm for spec in specs.values() if spec.exclusive for arm in spec.arms}
    effects = {"linear": -0.2, "linear_terminal": 0.05, "sparse_challenger": 0.1}
    frames = m2_frames.collected(runs, effects, {("cosine", 1)}, costs)
    write_collected(frames, place.results)
    return place


@pytest.fixture(scope="module")
def drawn(place: Place) -> Path:
    """All reports of the archive."""
    for _ in Archive.read(place).redraw():
        pass
    return place.results


def check_page(folder: Path) -> str:
    """A page whose figures and tables all lie beside it, and none besides."""
    text = (folder / "report.md").read_text()
    shown = re.findall(r"!\[\w+\]\((figures/\w+\.svg)\)", text)
    assert {f"figures/{path.name}" for path in (folder / "figures").glob("*")} == set(shown)
    linked = re.findall(r"\[\w+\]\((tables/\w+\.csv)\)", text)
    assert {f"tables/{path.name}" for path in (folder / "tables").glob("*")} == set(linked)
    assert "No data." not in text
    assert "\n\n\n\n" not in text
    return text


@pytest.mark.slow
@pytest.mark.parametrize("milestone", ["m1", "m2", "m3"])
def test_a_milestone_is_a_page_with_its_tables_and_figures(drawn: Path, milestone: str) -> None:
    text = check_page(drawn / milestone)
    assert len(text.split()) < MOST_WORDS[milestone]
    runs = pd.read_csv(drawn / milestone / "tables" / "per_seed.csv")
    assert f"{len(runs) - (milestone == 'm2')} of {len(runs)} runs finished" in text
    if milestone == "m1":
        first = next(line for line in text.splitlines() if line.startswith("|"))
        assert {"overlength", "oom", "nonfinite", "finished"} <= set(first.split("|"))
    if milestone == "m2":
        assert "- `cosine`, seed 1: failed, worker died" in text
    if milestone == "m3":
        assert (
            "|sparse|sparse_off|sparse_challenger|undecided|" in text
        )  # three seeds decide nothing


@pytest.mark.slow
def test_verdicts_of_the_pages_are_those_of_the_scale(drawn: Path) -> None:
    whole = pd.read_csv(drawn / "verdicts.csv")
    for milestone in ("m2", "m3"):
        own = pd.read_csv(drawn / milestone / "tables" / "verdicts.csv")
        pd.testing.assert_frame_equal(
            own, whole[whole.experiment.isin(own.experiment)].reset_index(drop=True)
        )


@pytest.mark.slow
def test_drawing_again_changes_no_byte(drawn: Path, place: Place) -> None:
    before = {path: path.read_bytes() for path in (drawn / "m1").rglob("*.*")}
    for _ in Archive.read(place).redraw(["m1"]):
        pass
    assert {path: path.read_bytes() for path in (drawn / "m1").rglob("*.*")} == before


def test_one_experiment_has_a_report_of_its_own(place: Place, tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="has no report"):
        report_page.write_page(tmp_path, tmp_path / "report.html")
    archive = Archive.read(place)
    written = list(archive.redraw(["B"], tmp_path))
    assert [path.name for path in written] == ["verdicts.csv", "report.md"]
    text = check_page(tmp_path / "B")
    assert text.startswith("# Largest weight of the judge (scale `cpu`)")
    assert "## B: " in text
    page = report_page.write_page(tmp_path, tmp_path / "report.html").read_text()
    assert '<section id="B"><h1>Largest weight' in page
    figures = list((tmp_path / "B" / "figures").iterdir())
    assert page.count('src="data:image/svg+xml;base64,') == len(figures)
    assert 'href="B/tables/B_summary.csv"' in page
    assert "http" not in re.sub(r"base64,[\w+/=]+", "", page)


def test_what_has_not_run_is_left_out_or_refused(place: Place, tmp_path: Path) -> None:
    frames = m2_frames.collected([("off", 1), ("linear", 1)], missing=[("linear", 1)])
    written = write_report(place, "M1", frames, tmp_path / "M1")
    assert "1 of 2 runs finished" in written.read_text()
    nothing = m2_frames.collected([("off", 1)], missing=[("off", 1)])
    with pytest.raises(StudyError, match="A: no run has finished at scale cpu; worker died"):
        write_report(place, "A", nothing, tmp_path / "A")
    assert not (tmp_path / "A").exists()
    lost = next(iter(load_experiments(place.params, ["E"])["E"].arms))
    frames = m2_frames.collected([("off", 1), ("linear", 1), (lost, 1)], missing=[(lost, 1)])
    text = write_report(place, "m2", frames, tmp_path / "m2").read_text()
    assert "2 of 3 runs finished" in text
    assert f"- `{lost}`, seed 1: failed, worker died\n" in text
    with pytest.raises(StudyError, match="no complete experiment noisy_entrpy"):
        list(Archive.read(place).redraw(["noisy_entrpy"]))


def test_a_folder_that_no_report_wrote_is_left_alone(place: Place, tmp_path: Path) -> None:
    frames = m2_frames.collected([("off", 1), ("linear", 1)])
    for kept in (tmp_path / "a" / "figures" / "mine.svg", tmp_path / "b" / "report.md"):
        kept.parent.mkdir(parents=True)
        kept.write_text("# Mine")
        with pytest.raises(StudyError, match=r"(figures|report\.md) was written by no report"):
            write_report(place, "M1", frames, tmp_path / kept.relative_to(tmp_path).parts[0])
        assert kept.read_text() == "# Mine"


@pytest.mark.parametrize(("seeds", "bands"), [((1, 2), 0), ((1, 2, 3), 1)])
def test_two_seeds_have_no_band(seeds, bands) -> None:
    metrics = m2_frames.collected([("off", seed) for seed in seeds]).metrics
    score = metrics.assign(value=metrics["critic/score/mean"]).dropna(subset="value")
    figure, (axis,) = style.panels(1, 1)
    style.curves(axis, score, {"off": "k"})
    assert len(axis.collections) == bands
    plt.close(figure)


@pytest.fixture
def measured(tmp_path: Path) -> Place:
    """Measurements of the scoring path."""
    place = Place("cpu", tmp_path / "results" / "cpu", tmp_path / "models" / "cpu")
    reports = {"robustness": scoring_reports.robustness(), "attacks": scoring_reports.attacks()}
    files = {
        place.results / "scoring" / "measurements" / f"{k}.json": v for k, v in reports.items()
    }
    for name, auc in {"judge_weak": 0.6, "judge_medium": 0.86, "judge_strong": 0.9}.items():
        files[place.models / "quality" / f"{name}.json"] = scoring_reports.quality(name, auc)
    for path, report in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(report))
    return place


def test_scoring(measured: Place) -> None:
    folder = write_scoring(measured, measured.results / "scoring").parent
    text = check_page(folder)
    assert len(text.split()) < MOST_WORDS["scoring"]
    attacks = pd.read_csv(folder / "tables" / "attacks.csv")
    assert attacks.lift.is_monotonic_decreasing
    judges = pd.read_csv(folder / "tables" / "judge_quality.csv").query("form == 'few_shot'")
    assert dict(zip(judges.model, judges.auc, strict=True))["judge_strong"] == 0.9


@pytest.mark.parametrize("text", ["", "{}"])
def test_scoring_without_a_measurement_is_refused(measured: Place, text: str) -> None:
    path = measured.results / "scoring" / "measurements" / "attacks.json"
    path.write_text(text)
    with pytest.raises(StudyError, match=r"attacks\.json"):
        write_scoring(measured, measured.results / "scoring")

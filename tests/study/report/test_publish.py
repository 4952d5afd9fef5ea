"""Publishing: a study that differs in times only leaves what git tracks as it is, to the byte."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from refblend.errors import StudyError
from refblend.study.design.grid import read_grid
from refblend.study.report import publish as publishing
from refblend.study.report.beside import PER_SEED
from refblend.study.report.engine import draw, write_report, write_tables
from refblend.study.report.publish import made_from, publish, redraw_reports
from refblend.study.report.registry import Inputs, Report, load_report
from refblend.study.runs.archive import write_archive
from refblend.study.runs.collect import collect, write_collected

MakeRun = Callable[..., Path]
PARAMS = Path(__file__).parents[3] / "params"
GRID = "experiment\tarm\tseed\toverrides\nM1\toff\t1\t{}\nM1\tlinear\t1\t{}\n"
REPORT = load_report("m1")


class Study:
    """M1 with two runs in a git repository that tracks the results."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.inputs = Inputs(
            "cpu",
            ("M1",),
            root / "runs" / "_collected",
            root / "models",
            root / "results",
            params=PARAMS,
        )
        self.built = root / "build" / "m1"
        root.mkdir(exist_ok=True)
        (root / "grid.tsv").write_text(GRID)
        (root / ".gitignore").write_text("runs\nbuild\n")
        self.git("init", "-q")

    def git(self, *arguments: str) -> str:
        """Call git in the repository."""
        name = ("-c", "user.name=a", "-c", "user.email=a@b")
        done = subprocess.run(
            ["git", *name, *arguments], cwd=self.root, capture_output=True, text=True, check=True
        )
        return done.stdout

    def publish(self) -> bool:
        """Collect the runs, build the report with one figure drawn for all, and publish it."""
        frames = collect(read_grid(self.root / "grid.tsv"), "cpu", self.root / "runs")
        write_collected(frames, self.inputs.collected)
        shutil.rmtree(self.built, ignore_errors=True)
        write_tables(REPORT, self.inputs, self.built)
        figures = [self.built / "figures" / n for n in self.figures()]
        draw(REPORT, self.inputs, figures[0])
        for path in figures[1:]:  # drawing all of them takes seconds and shows nothing more
            shutil.copy(figures[0], path)
        write_report(REPORT, self.inputs, self.built)
        return publish(REPORT, self.inputs, self.built)

    def figures(self) -> list[str]:
        """Names of the figures' files."""
        figures = REPORT.artifacts(self.inputs.experiments, "figure")
        previews = [f"{figure.name}.png" for figure in figures if figure.preview]
        return [f"{figure.name}.svg" for figure in figures] + previews


@pytest.fixture
def study(tmp_path: Path, make_run: MakeRun) -> Study:
    made = Study(tmp_path / "project")
    for arm in ("off", "linear"):
        make_run(made.root / "runs" / "cpu" / arm / "seed_1", 1, 8, blended=arm != "off")
    return made


def later(study: Study) -> None:
    """The same runs, trained by another commit on another, slower machine."""
    for path in study.root.rglob("provenance.json"):
        record = json.loads(path.read_text())
        record["git"]["commit"] = "fedcba9876543210"
        record["hardware"]["cpu"] = "Slow CPU"
        record["totals"]["wall_time_s"] *= 3
        path.write_text(json.dumps(record))
    for path in study.root.rglob("metrics.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines:
            line |= {k: 3 * v for k, v in line.items() if k.startswith(("perf/", "timing_s/"))}
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_an_equal_study_leaves_git_clean(study: Study) -> None:
    assert study.publish()
    published = study.root / "results" / "m1"
    study.git("add", "-A")
    study.git("commit", "-qm", "results")
    before = (published / "report.md").stat().st_mtime_ns
    later(study)
    assert not study.publish()
    assert "Slow CPU" in (study.built / "report.md").read_text(), "the built report is another"
    assert study.git("status", "--porcelain") == ""
    assert (published / "report.md").stat().st_mtime_ns > before, "up to date for the workflow"


def test_a_changed_number_is_published_and_only_what_changed(study: Study) -> None:
    study.publish()
    study.git("add", "-A")
    study.git("commit", "-qm", "results")
    later(study)
    for path in (study.root / "runs" / "cpu" / "linear").rglob("test.json"):
        path.write_text(path.read_text().replace('"greedy": 0.57', '"greedy": 0.75'))
    (study.root / "results" / "m1" / "tables" / "gone.csv").write_text("of an older report\n")
    assert study.publish()
    changed = study.git("status", "--porcelain").split()
    assert "results/m1/report.md" in changed
    assert "results/m1/tables/final_accuracy.csv" in changed
    assert "results/m1/tables/incidents.csv" not in changed, "no number of it changed"
    assert not (study.root / "results" / "m1" / "tables" / "gone.csv").exists()
    assert not publish(REPORT, study.inputs, study.built)


def test_an_incomplete_or_edited_publication_is_made_again(study: Study) -> None:
    study.publish()
    (study.root / "results" / "m1" / "tables" / "final_accuracy.csv").unlink()
    assert publish(REPORT, study.inputs, study.built)
    report = study.root / "results" / "m1" / "report.md"
    report.write_text(report.read_text().rpartition("<!--")[0])
    assert publish(REPORT, study.inputs, study.built)
    (study.built / "tables" / "final_accuracy.csv").unlink()
    with pytest.raises(StudyError, match=r"has no tables/final_accuracy\.csv"):
        publish(REPORT, study.inputs, study.built)


def test_what_the_text_says_of_the_settings_is_part_of_what_it_is_made_from(
    study: Study, tmp_path: Path
) -> None:
    params = tmp_path / "params"
    shutil.copytree(PARAMS, params)
    inputs = Inputs("cpu", ("M1",), study.inputs.collected, study.root, study.root, params)
    write_collected(
        collect(read_grid(study.root / "grid.tsv"), "cpu", study.root), inputs.collected
    )
    hashes = [made_from(REPORT, inputs)]
    with (params / "ppo.yaml").open("a") as file:
        file.write("\n# a comment\n")
    assert made_from(REPORT, inputs) == hashes[0], "a comment is no setting"
    for name in ("ppo", "scale/cpu", "embedded/cpu"):
        path = params / f"{name}.yaml"
        tree = yaml.safe_load(path.read_text())
        tree.setdefault("algorithm", {})["gamma"] = 0.5
        path.write_text(yaml.safe_dump(tree))
        hashes.append(made_from(REPORT, inputs))
    assert len(set(hashes)) == 4


@pytest.fixture
def published(study: Study) -> Path:
    """Results with an archive of M1, M2 and M3, and older reports of all of them."""
    results = study.root / "results" / "cpu"
    lines = [f"{name}\t{arm}\t1\t{{}}\n" for name in ("M1", "A", "M3") for arm in ("off", "linear")]
    results.mkdir(parents=True)
    (results / "grid.tsv").write_text(GRID.partition("M1")[0] + "".join(lines))
    frames = collect(read_grid(results / "grid.tsv"), "cpu", study.root / "runs")
    write_archive(frames, results)
    (results / "scoring" / "measurements").mkdir(parents=True)
    for name in ("scoring", "m1", "m2", "m3"):
        (results / name / "tables").mkdir(parents=True)
        for table in ("kept", "gone"):
            (results / name / "tables" / f"{table}.csv").write_text("old")
    (results / "m3" / "recommended.yaml").write_text("chosen")
    (results / "m3" / "recommended.json").write_text("{}")
    other = results.parent / "smollm"
    (other / PER_SEED).parent.mkdir(parents=True)
    (other / "verdicts.csv").write_text("elsewhere")
    (other / PER_SEED).write_text("runs elsewhere")
    return results


def test_nothing_is_redrawn_where_m3_has_chosen_nothing(published: Path, tmp_path: Path) -> None:
    chosen = published / "m3" / "recommended.json"
    chosen.unlink()
    with pytest.raises(StudyError, match=f"{chosen} is missing"):
        next(redraw_reports("cpu", published, PARAMS, tmp_path / "elsewhere"))
    assert not (tmp_path / "elsewhere").exists()


def test_a_grid_without_rows_is_refused(published: Path) -> None:
    (published / "grid.tsv").write_text(GRID.partition("M1")[0])
    with pytest.raises(StudyError, match=r"grid\.tsv has no rows"):
        next(redraw_reports("cpu", published, PARAMS))


def test_redrawn_reports_read_one_another_and_not_the_published_ones(
    published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: dict[str, Inputs] = {}

    def write(report: Report, inputs: Inputs, built: Path) -> None:
        read[report.name] = inputs
        for name in publishing.READS[report.name]:
            tables = inputs.results / name / "tables"
            assert {path.name: path.read_text() for path in tables.glob("*")} == {"kept.csv": "new"}
        if report.name == "m3":
            assert (inputs.results / "m3" / "recommended.yaml").read_text() == "chosen"
            beside = inputs.results.parent / "smollm" / "verdicts.csv"
            assert beside.read_text() == "elsewhere"
            assert (beside.parent / PER_SEED).read_text() == "runs elsewhere"
            assert (inputs.results / "runs.csv").is_file(), "M3 names the warm starts of all runs"
        (built / "tables").mkdir(parents=True)
        (built / "tables" / "kept.csv").write_text("new")

    monkeypatch.setattr(publishing, "write_everything", write)
    before = {path: path.read_bytes() for path in published.rglob("*") if path.is_file()}
    out = tmp_path / "elsewhere"
    written = list(redraw_reports("cpu", published, PARAMS, out))
    names = ("scoring", "m1", "m2", "m3")
    assert written == [out / "verdicts.csv", *(out / name / "report.md" for name in names)]
    assert set(read) == set(names), "measurements without circumstances are enough"
    assert sorted(path.name for path in out.rglob("*") if path.is_file()) == [
        *["kept.csv"] * 4, "verdicts.csv",
    ]  # fmt: skip
    after = {path: path.read_bytes() for path in published.rglob("*") if path.is_file()}
    assert after == before

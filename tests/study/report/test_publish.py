"""Publishing: a study that differs in times only leaves what git tracks as it is, to the byte."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from refblend.errors import StudyError
from refblend.study.design.grid import read_grid
from refblend.study.report.engine import draw, write_report, write_tables
from refblend.study.report.publish import publish
from refblend.study.report.registry import Inputs, load_report
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

"""The reports' rules: what makes a report stale, shown on the scoring report."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import scoring_reports

from refblend.study.report.registry import load_report

PACKAGE = "src/refblend/study/report"
FIGURES = f"{PACKAGE}/scoring/figures.py"
RULES = ("scoring_tables", "figure", "preview", "report", "publish")

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("snakemake") is None, reason="needs the extra `workflow`"
)


def snakemake(project: Path, *arguments: str) -> str:
    """Make the scoring report with the project's own copy of the package; returns the output."""
    run = "from refblend.cli.main import main; main()"
    function = f"() {{ {sys.executable} -c '{run}' \"$@\"; }}"
    target = ["results/smoke/scoring/report.md", "--allowed-rules", *RULES, "--cores", "2"]
    done = subprocess.run(
        [sys.executable, "-m", "snakemake", *target, *arguments],
        cwd=project,
        env=os.environ | {"BASH_FUNC_refblend%%": function, "PYTHONPATH": str(project / "src")},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def planned(project: Path) -> set[str]:
    """What a dry run would do: names of the figures' files, `tables`, `report`."""
    shell = r"refblend study (\w+) .*?(?:figures/(\S+) .*)?> "
    return {figure or step for step, figure in re.findall(shell, snakemake(project, "-n"))}


@pytest.fixture
def made(project: Path) -> Path:
    """The project with the scoring report of stated measurements."""
    measured = project / "results" / "smoke" / "scoring" / "measurements"
    quality = project / "models" / "smoke" / "quality"
    for folder in (measured, quality):
        folder.mkdir(parents=True)
    (measured / "robustness.json").write_text(json.dumps(scoring_reports.robustness()))
    (measured / "attacks.json").write_text(json.dumps(scoring_reports.attacks()))
    (quality / "actor.json").write_text("{}")
    for name in ("judge_weak", "judge_medium", "judge_strong"):
        (quality / f"{name}.json").write_text(json.dumps(scoring_reports.quality(name)))
    snakemake(project, "--quiet")
    return project


def edit(project: Path, name: str, old: str, new: str) -> None:
    path = project / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


@pytest.mark.slow
def test_reports_follow_their_version_and_no_edit(made: Path) -> None:
    edit(made, FIGURES, 'xlabel="lift of the mean score"', 'xlabel="lift"')
    edit(made, f"{PACKAGE}/scoring/text.py", "LISTED_ATTACKS = 5", "LISTED_ATTACKS = 3")
    assert planned(made) == set(), "no file of the package is an input"
    edit(made, "src/refblend/numerics.json", '"report": 1', '"report": 2')
    drawn = {f"{name}.svg" for name in load_report("scoring").names("figure", {})}
    assert planned(made) == drawn | {"tables", "robustness.png", "report", "publish"}

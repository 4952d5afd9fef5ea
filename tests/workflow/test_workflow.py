"""The workflow itself, called as a user calls it, with training replaced by a stand-in."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from refblend.study.grid import build_grid
from refblend.study.spec import WorkflowConfig, json_schemas

ROOT = Path(__file__).parents[2]
FAKE = Path(__file__).with_name("fake_refblend.py")

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("snakemake") is None, reason="needs the extra `workflow`"
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the project without data, models, runs and results."""
    for name in ("params", "workflow", "src"):
        ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignore)
    shutil.copy(ROOT / "Snakefile", tmp_path)
    (tmp_path / "profiles").symlink_to("workflow/profiles")
    return tmp_path


def snakemake(project: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    # A shell function of this name is found before any program.
    function = f'() {{ {sys.executable} {FAKE} "$@"; }}'
    environment = os.environ | {"BASH_FUNC_refblend%%": function} | variables
    return subprocess.run(
        [sys.executable, "-m", "snakemake", *arguments],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def job_counts(text: str) -> dict[str, int]:
    """The table of jobs that Snakemake prints."""
    lines = text.split("Job stats:", 1)[1].strip().splitlines()[2:]
    counts = {}
    for line in lines:
        if not line.strip():
            break
        name, count = line.split()
        counts[name] = int(count)
    return counts


def trained(project: Path) -> list[str]:
    record = project / "trained.txt"
    return sorted(record.read_text().split()) if record.exists() else []


def test_schemas_are_those_of_the_models() -> None:
    for name, schema in json_schemas().items():
        stored = json.loads((ROOT / "workflow" / "schemas" / name).read_text())
        assert stored == schema, f"{name} is out of step: run `refblend study schemas`"


def test_workflow_parameters_spell_out_every_key() -> None:
    written = yaml.safe_load((ROOT / "params" / "workflow.yaml").read_text())
    WorkflowConfig.model_validate(written)
    assert set(written) == set(WorkflowConfig.model_fields)


@pytest.mark.parametrize("scale", ["smoke", "cpu", "gpu"])
def test_the_grid_of_every_scale_is_valid(scale: str) -> None:
    for experiment in (ROOT / "params" / "study").glob("*.yaml"):
        assert len(build_grid([experiment.stem], scale, ROOT / "params"))


def test_dry_run_plans_every_run_once(project: Path) -> None:
    done = snakemake(project, "m1", "-n", "--config", "scale=cpu")
    assert done.returncode == 0, done.stdout + done.stderr
    counts = job_counts(done.stdout + done.stderr)
    assert (counts["train"], counts["judge"], counts["m1_report"]) == (6, 3, 1)


def test_smoke_needs_no_configuration(project: Path) -> None:
    done = snakemake(project, "smoke", "-n", "--quiet", "rules")
    assert done.returncode == 0, done.stdout + done.stderr
    assert job_counts(done.stdout + done.stderr)["train"] == 2


def test_scoring_measures_every_judge_and_trains_no_actor(project: Path) -> None:
    done = snakemake(project, "scoring", "-n", "--quiet", "rules", "--config", "scale=cpu")
    assert done.returncode == 0, done.stdout + done.stderr
    counts = job_counts(done.stdout + done.stderr)
    assert (counts["judge_quality"], counts["robustness"], counts["attacks"]) == (3, 1, 1)
    assert "train" not in counts
    refused = snakemake(project, "scoring", "-n", "--config", "scale=gpu")
    assert refused.returncode != 0
    assert "scale gpu has no judges of ours" in refused.stdout + refused.stderr


def test_judge_and_sizes_are_parameters(project: Path) -> None:
    path = project / "params" / "workflow.yaml"
    text = path.read_text().replace("judge: medium", "judge: weak")
    path.write_text(text.replace("robustness_problems: 4", "robustness_problems: 7"))
    target = "results/smoke/scoring/measurements/robustness.json"
    done = snakemake(project, target, "-n", "-p")
    assert done.returncode == 0, done.stdout + done.stderr
    output = done.stdout + done.stderr
    assert "--judge models/smoke/judge_weak" in output
    assert "--rows 7 --engine hf" in output


def test_what_only_measures_judges_trains_nothing_again() -> None:
    """The sources of the training rules are the modules that training imports."""
    text = (ROOT / "workflow" / "rules" / "common.smk").read_text()
    names: dict[str, tuple[str, ...]] = {}
    exec(text[text.index("SCORING_PATH =") : text.index("TRAINER_SOURCES =")], names)
    listed = {Path(name).stem for name in names["SCORING_PATH"]}
    code = (
        "import sys, refblend.trainer.ray_trainer, refblend.workers.fsdp_workers\n"
        "import refblend.models.judge\n"
        "print(*(n.split('.')[2] for n in sys.modules if n.startswith('refblend.scoring.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= listed


def test_lint_is_clean(project: Path) -> None:
    done = snakemake(project, "--lint")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("params/study/M1.yaml", "max_weight: 0.3", "max_weight: 1.5", "max_weight"),
        ("params/study/M1.yaml", "strategy: linear", "stratgy: linear", "stratgy"),
        ("params/workflow.yaml", "scale: cpu", "scale: laptop", "laptop"),
    ],
)
def test_wrong_parameters_stop_before_any_work(
    project: Path, name: str, old: str, new: str, message: str
) -> None:
    path = project / name
    path.write_text(path.read_text().replace(old, new))
    done = snakemake(project, "m1", "-n")
    assert done.returncode != 0
    assert message in done.stdout + done.stderr


@pytest.mark.slow
def test_failures_are_reported_and_tried_again(project: Path) -> None:
    """Fails, recovers, rests, and re-trains what a changed parameter affects."""
    first = snakemake(project, "smoke", "--cores", "2", FAKE_FAIL="linear")
    results = project / "results" / "smoke" / "m1"
    assert first.returncode != 0
    assert "**failed**, no memory left" in (results / "report.md").read_text()
    assert not (results / "checks.json").exists()
    assert trained(project) == ["runs/smoke/linear/seed_1", "runs/smoke/off/seed_1"]

    second = snakemake(project, "smoke", "--cores", "2")
    assert second.returncode == 0, second.stdout + second.stderr
    assert "2 of 2 runs finished" in (results / "report.md").read_text()
    assert "## Experiment D" in (results.parent / "scoring" / "report.md").read_text()
    assert len(trained(project)) == 3, "only the failed run is tried again"

    third = snakemake(project, "smoke", "--cores", "2")
    assert "Nothing to be done" in third.stdout + third.stderr

    experiment = project / "params" / "study" / "M1.yaml"
    text = experiment.read_text()
    experiment.write_text(text.replace("max_weight: 0.3", "max_weight: 0.2") + "\n# a comment\n")
    planned = snakemake(project, "smoke", "-n", "--quiet", "rules")
    assert job_counts(planned.stdout + planned.stderr)["train"] == 1


@pytest.mark.slow
def test_a_killed_run_is_resumed_and_not_recorded_as_failed(project: Path) -> None:
    first = snakemake(project, "smoke", "--cores", "2", FAKE_KILL="linear")
    run = project / "runs" / "smoke" / "linear" / "seed_1"
    assert first.returncode != 0
    assert not (run / "summary.json").exists()
    assert not (run / "failures.jsonl").exists()
    second = snakemake(project, "smoke", "--cores", "2")
    assert second.returncode == 0, second.stdout + second.stderr
    assert trained(project).count("runs/smoke/linear/seed_1") == 2

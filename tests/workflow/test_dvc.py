"""The real ``dvc.yaml``: its stages depend on hashes of code, and a comment makes nothing stale."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from refblend.numeric_code import PURPOSES
from refblend.study.design.spec import experiments_of

ROOT = Path(__file__).parents[2]
STAGES: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("dvc") is None, reason="needs the extra `workflow`"
)


def dvc(project: Path, *arguments: str) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["dvc", *arguments],
        cwd=project,
        env=os.environ | {"PATH": path, "PYTHONPATH": str(project / "src")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def tracked(project: Path) -> Path:
    """A copy of the project with the real stages but for the work: they write a word instead."""
    pipeline = yaml.safe_load((ROOT / "dvc.yaml").read_text())
    del pipeline["plots"]
    for name, stage in pipeline["stages"].items():
        if name != "code":
            stage["cmd"] = f"echo {name} >> called.txt; mkdir -p done; echo ok > done/{name}"
            stage["outs"], stage["metrics"] = [f"done/{name}"], []
            stage["deps"] = [dep for dep in stage["deps"] if (project / dep).exists()]
    (project / "dvc.yaml").write_text(yaml.safe_dump(pipeline))
    for name in (".gitignore", ".dvcignore"):
        shutil.copy(ROOT / name, project)
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    dvc(project, "init", "-q")
    return project


def called(project: Path) -> list[str]:
    """The stages that ran since the last call of this function."""
    record = project / "called.txt"
    names = record.read_text().split() if record.exists() else []
    record.unlink(missing_ok=True)
    return sorted(names)


def test_only_the_stage_of_the_hashes_depends_on_the_source() -> None:
    for name, stage in STAGES.items():
        assert ("src/refblend" in stage["deps"]) == (name == "code"), name
        if name != "code":
            keys = next(p["build/code.json"] for p in stage["params"] if "build/code.json" in p)
            assert set(keys) <= set(PURPOSES), name
    assert subprocess.run(["git", "check-ignore", "-q", "build/code.json"], cwd=ROOT).returncode < 1


@pytest.mark.slow
def test_stages_follow_the_code_that_they_need(tracked: Path) -> None:
    everything = sorted(set(STAGES) - {"code"})
    dvc(tracked, "repro")
    assert called(tracked) == everything
    assert set(json.loads((tracked / "build" / "code.json").read_text())) == set(PURPOSES)
    package = tracked / "src" / "refblend"
    for path in package.rglob("*.py"):
        path.write_text(f"{path.read_text()}\n# A comment.\n")
    dvc(tracked, "repro")
    assert called(tracked) == []
    assert "up to date" in dvc(tracked, "status")
    for module, expected in (
        ("ppo/losses.py", ["m1", "m2", "m3"]),
        ("embedded/judge_training.py", ["prepare"]),  # the others follow its models, absent here
        ("scoring/measure/attacks.py", ["m2", "prepare"]),
        ("cli/main.py", []),
    ):
        path = package / module
        path.write_text(f"{path.read_text()}\n_SEVENTEEN = 17\n")
        dvc(tracked, "repro")
        assert called(tracked) == expected, module


REAL = " && ".join(
    f"{sys.executable} -c 'from refblend.cli.main import main; main()' {command}"
    for command in (
        "data prepare --recipe params/embedded/smoke.yaml --out data/smoke",
        "models tokenizer --recipe params/embedded/smoke.yaml --out models/smoke/tokenizer",
    )
)
"""What the rules of the stage ``prepare`` call first; its models take minutes."""


def test_status_is_clean_after_everything_was_made_again(project: Path) -> None:
    """The real files, made twice: the same hashes, so DVC has nothing to do and git no change."""
    pipeline = yaml.safe_load((ROOT / "dvc.yaml").read_text())
    prepare = pipeline["stages"]["prepare"] | {"cmd": REAL}
    stages = {"code": pipeline["stages"]["code"], "prepare": prepare}
    (project / "dvc.yaml").write_text(yaml.safe_dump(pipeline | {"stages": stages, "plots": []}))
    workflow = project / "params" / "workflow.yaml"
    workflow.write_text(workflow.read_text().replace("scale: cpu", "scale: smoke"))
    for name in (".gitignore", ".dvcignore"):
        shutil.copy(ROOT / name, project)
    git = ["git", "-c", "user.name=test", "-c", "user.email=test@example.org"]
    subprocess.run([*git, "init", "-q"], cwd=project, check=True)
    dvc(project, "init", "-q")
    dvc(project, "repro")
    for command in (["add", "."], ["commit", "-qm", "all"]):
        subprocess.run([*git, *command], cwd=project, check=True)
    lock = (project / "dvc.lock").read_text()
    for name in ("data", "models", "build"):
        shutil.rmtree(project / name)
    dvc(project, "repro", "--force")
    assert len(list((project / "data" / "smoke").glob("*.parquet"))) == 4
    assert (project / "dvc.lock").read_text() == lock
    assert "up to date" in dvc(project, "status")
    done = subprocess.run(
        [*git, "status", "--porcelain"], cwd=project, check=True, text=True, capture_output=True
    )
    assert done.stdout == ""


def test_repro_plans_every_scale(project: Path) -> None:
    """Scale gpu has neither recipe nor scoring study. What earlier stages make must be there even
    in a dry run of DVC, so empty folders stand for it."""
    for name in ("dvc.yaml", ".gitignore", ".dvcignore"):
        shutil.copy(ROOT / name, project)
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    dvc(project, "init", "-q")
    workflow = project / "params" / "workflow.yaml"
    text = workflow.read_text()
    for scale in ("gpu", "cpu"):
        workflow.write_text(text.replace("scale: cpu", f"scale: {scale}"))
        for folder in (f"data/{scale}", f"models/{scale}", f"results/{scale}/m2"):
            (project / folder).mkdir(parents=True)
        (project / f"results/{scale}/m2/report.md").touch()
        dvc(project, "repro", "code")  # whose hashes the other stages read
        planned = dvc(project, "repro", "--dry")
        for target in ("prepare", "m1", "m2", "m3"):
            assert f"> snakemake {target} --config scale={scale}" in planned


@pytest.mark.slow
def test_a_fresh_clone_pulls_from_a_local_remote(tracked: Path, tmp_path: Path) -> None:
    """As docs/how-to/scale.md says: push to a folder, clone, pull, nothing is stale."""
    dvc(tracked, "repro")
    store, clone = tmp_path / "store", tmp_path / "clone"
    dvc(tracked, "remote", "add", "--default", "store", str(store))
    dvc(tracked, "push")
    git = ["git", "-c", "user.name=test", "-c", "user.email=test@example.org"]
    for command in (["add", "."], ["commit", "-qm", "all"]):
        subprocess.run([*git, *command], cwd=tracked, check=True)
    subprocess.run([*git, "clone", "-q", str(tracked), str(clone)], check=True)
    shutil.copytree(tracked / "build", clone / "build")
    dvc(clone, "pull")
    for name in set(STAGES) - {"code"}:
        assert (clone / "done" / name).read_text() == "ok\n"
    assert "up to date" in dvc(clone, "status")


@pytest.mark.parametrize("stage", ["m1", "m2", "m3"])
def test_a_stage_depends_on_every_experiment_of_its_milestone(stage: str) -> None:
    """A new file of params/study needs its line in dvc.yaml, or `dvc repro` would not see it."""
    named = {str(name) for entry in STAGES[stage]["params"] for name in entry}
    wanted = {f"params/study/{name}.yaml" for name in experiments_of(stage, ROOT / "params")}
    assert wanted <= named

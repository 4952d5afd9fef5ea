"""The real ``dvc.yaml``: what makes its stages stale, and that no command of DVC removes a file."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PIPELINE: dict[str, Any] = yaml.safe_load((ROOT / "dvc.yaml").read_text())
STAGES: dict[str, dict[str, Any]] = PIPELINE["stages"]
GIT = ("git", "-c", "user.name=test", "-c", "user.email=test@example.org")


def dvc(project: Path, *arguments: str, status: int = 0) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    named = {
        f"GIT_{who}_{what}": "t@example.org"
        for who in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")
    }
    done = subprocess.run(
        ["dvc", *arguments],
        cwd=project,
        env=os.environ | named | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def tracked(project: Path) -> Path:
    """A clone of the project whose stages write a word, and the metrics that are not there."""
    pipeline = yaml.safe_load((ROOT / "dvc.yaml").read_text())
    for name, stage in pipeline["stages"].items():
        outs = [next(iter(out)) for out in stage.get("outs", [])]
        outs += pipeline["metrics"] if name == "run" else []
        made = [f"mkdir -p $(dirname {out}); echo '{{\"accuracy\": 0.5}}' > {out}" for out in outs]
        if name == "prepare":
            made = ["mkdir -p data/${scale}; echo rows > data/${scale}/train.parquet"]
        stage["cmd"] = "; ".join([f"echo {name} >> called.txt", *made])
    (project / "dvc.yaml").write_text(yaml.safe_dump(pipeline))
    for name in (".gitignore", ".dvcignore"):
        shutil.copy(ROOT / name, project)
    with (project / ".gitignore").open("a") as stream:
        stream.write("called.txt\n/results\n")
    subprocess.run([*GIT, "init", "-q"], cwd=project, check=True)
    shutil.copytree(ROOT / ".dvc", project / ".dvc", ignore=shutil.ignore_patterns("cache", "tmp"))
    commit(project)
    return project


def commit(project: Path) -> None:
    for command in (["add", "."], ["commit", "-qm", "all"]):
        subprocess.run([*GIT, *command], cwd=project, check=True)


def called(project: Path) -> list[str]:
    """The stages that ran since the last call of this function."""
    record = project / "called.txt"
    names = record.read_text().split() if record.exists() else []
    record.unlink(missing_ok=True)
    return sorted(names)


def test_every_stage_keeps_its_outputs() -> None:
    outs = [out for stage in STAGES.values() for out in stage.get("outs", [])]
    assert [next(iter(out)) for out in outs] == ["data/${scale}"]
    for out in outs:
        ((name, options),) = out.items()
        assert options == {"cache": False, "persist": True}, name


def test_the_lock_belongs_to_this_commit() -> None:
    """Else `dvc repro prepare` and `dvc commit --force`, in the commit that edits ``params/``."""
    told = dvc(ROOT, "status")
    not_prepared = ["prepare:", "changed", "outs:", "deleted:", "data/cpu"]
    assert "up to date" in told or told.split() == not_prepared


def test_stages_follow_parameters_and_versions_of_numbers(tracked: Path) -> None:
    dvc(tracked, "repro")
    assert called(tracked) == sorted(STAGES)
    losses = tracked / "src" / "refblend" / "ppo" / "losses.py"
    losses.write_text(f"{losses.read_text()}\n_SEVENTEEN = 17\n")
    (tracked / "src" / "refblend" / "new_module.py").write_text("")
    assert "up to date" in dvc(tracked, "status"), "no source file is an input"
    numerics = tracked / "src" / "refblend" / "numerics.json"
    numerics.write_text(numerics.read_text().replace('"train": 1', '"train": 2'))
    dvc(tracked, "repro")
    assert called(tracked) == sorted(STAGES), "Snakemake knows which of their jobs"
    lock = (tracked / "dvc.lock").read_text()
    dvc(tracked, "repro", "--force")
    assert (tracked / "dvc.lock").read_text() == lock, "an identical study"


@pytest.mark.slow
@pytest.mark.parametrize("scale", ["smoke", "cpu", "gpu"])
def test_no_command_removes_a_file_of_the_user(tracked: Path, scale: str) -> None:
    """Where the documentation tells users to put their models and data."""
    mine = [tracked / folder / scale / "mine.txt" for folder in ("models", "data")]
    for file in mine:
        file.parent.mkdir(parents=True)
        file.write_text("years of work")
    chosen = f"params/workflow.yaml:scale={scale}"
    for command in (
        ("exp", "run", "prepare", "-S", chosen),
        ("repro", "prepare"),
        ("repro", "--force"),
        ("checkout", "--force"),
        ("gc", "--workspace", "--force"),
        ("exp", "run", "run", "-S", chosen, "-S", "params/ppo.yaml:trainer.test_freq=7"),
    ):
        dvc(tracked, *command)
        assert [file.read_text() for file in mine] == ["years of work"] * 2, command

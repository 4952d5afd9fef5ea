"""The real ``dvc.yaml``: what it records, and that no command of DVC removes a file."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PIPELINE: dict[str, Any] = yaml.safe_load((ROOT / "dvc.yaml").read_text())
STAGES: dict[str, dict[str, Any]] = PIPELINE["stages"]


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
def tracked(project: Path, commit: Callable[[], None]) -> Path:
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
    with (project / ".gitignore").open("a") as stream:
        stream.write("called.txt\n/results\n")
    commit()
    return project


def called(project: Path) -> list[str]:
    """The stages that ran since the last call of this function."""
    record = project / "called.txt"
    names = record.read_text().split() if record.exists() else []
    record.unlink(missing_ok=True)
    return sorted(names)


def test_every_stage_keeps_its_outputs_and_asks_snakemake_every_time() -> None:
    assert all(stage["always_changed"] for stage in STAGES.values())
    outs = [out for stage in STAGES.values() for out in stage.get("outs", [])]
    made = ["data", *(f"results/{name}" for name in ("m1", "m2", "m3"))]
    assert [next(iter(out)).replace("/${scale}", "") for out in outs] == made
    for out in outs:
        ((name, options),) = out.items()
        assert options == {"cache": False, "persist": True}, name


def test_the_lock_records_the_last_call_and_demands_nothing(tracked, commit) -> None:
    """In a fresh clone dvc.lock is there and the runs are not; an edit needs no new dvc.lock."""
    for _ in range(2):
        dvc(tracked, "repro")
        assert called(tracked) == sorted(STAGES)
    told = dvc(tracked, "status")
    assert told.count("always changed") == len(STAGES)
    assert "changed deps" not in told
    commit()
    lock = (tracked / "dvc.lock").read_text()
    changed = "algorithm.ref_quality_score.max_weight"
    dvc(tracked, "exp", "run", "run", "-S", f"params/ppo.yaml:{changed}=0.2")
    assert called(tracked) == ["prepare", "run"], "data and models first"
    assert changed in dvc(tracked, "params", "diff")
    assert "modified" in dvc(tracked, "status", "m1"), "the parameters of its results are others"
    dvc(tracked, "repro")
    assert (tracked / "dvc.lock").read_text() != lock


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

"""The package without its checkout: a wheel, installed elsewhere, has all that commands need."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pandas as pd
import pytest
import yaml
from environments import python_of
from made_rollouts import rollouts

ROOT = Path(__file__).parents[1]
PROBE = ROOT / "tests" / "integrations" / "light_probe.py"
CALL = "import sys, refblend.cli as cli; sys.argv[0] = 'refblend'; sys.exit(cli.main())"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that no build folder is left in the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", source / "src", ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip("wheel", "--no-build-isolation", "--wheel-dir", str(folder), str(source))
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("installed")
    pip("install", "--target", str(target), str(wheel))
    return target


def pip(command: str, *arguments: str) -> None:
    flags = ("--no-deps", "--no-index", "--disable-pip-version-check", "-q")
    call = [sys.executable, "-m", "pip", command, *flags, *arguments]
    result = subprocess.run(call, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.fixture
def refblend(installed: Path, tmp_path: Path):
    """Runs a command of the installed package in a directory of its own."""

    def run(*arguments, statuses=(0,), program=(sys.executable, "-c", CALL)) -> str:
        result = subprocess.run(
            [*program, *arguments],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(installed)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode in statuses, result.stdout + result.stderr
        return result.stdout

    return run


def test_the_wheel_holds_every_file_that_is_no_module(wheel: Path) -> None:
    source = ROOT / "src"
    wanted = {
        path.relative_to(source).as_posix()
        for path in (source / "refblend").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    missing = wanted - set(zipfile.ZipFile(wheel).namelist())
    assert {Path(name).suffix for name in wanted} >= {".py", ".yaml", ".j2"}
    assert not missing


def test_check_without_the_checkout(refblend, tiny_config, tmp_path: Path) -> None:
    config = tmp_path / "mine.yaml"
    config.write_text(yaml.safe_dump(tiny_config().resolved()))
    assert "2 steps" in refblend("check", "--config", str(config))


def test_score_without_the_checkout(refblend, tiny_model_dir: Path, tmp_path: Path) -> None:
    rows = [{"question": "3+4?", "response": f"3+4={n}.\n#### {n}"} for n in (7, 8)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    files = ("--input", "rows.jsonl", "--output", "scores.parquet")
    judge = ("--judge", str(tiny_model_dir), "--kind", "hf", "--templates", "embedded")
    # Random weights write no score, which status 3 says; the neutral ones are written all the same.
    refblend("score", *files, *judge, "--set", "max_new_tokens=8", statuses=(0, 3))
    scores = pd.read_parquet(tmp_path / "scores.parquet")
    assert scores["score"].between(0, 1).all()
    assert scores["response"].tolist() == [row["response"] for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["light", "trl"])
def test_the_wheel_without_the_trainer(refblend, installed, tiny_model_dir, tmp_path, name) -> None:
    """Only what the wheel asks for (``make .tools/light``), and the environment of TRL."""
    rollouts(60).to_json(tmp_path / "rollouts.jsonl", orient="records", lines=True)
    said = refblend("rollouts.jsonl", str(tiny_model_dir), program=(python_of(name), PROBE))
    assert Path(json.loads(said.splitlines()[-1])["place"]) == installed

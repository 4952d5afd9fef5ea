"""A copy of the project in which the workflow can be called."""

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GIT = ("git", "-c", "user.name=test", "-c", "user.email=test@example.org")


@pytest.fixture(autouse=True)
def _workflow_extra() -> None:
    if None in map(importlib.util.find_spec, ("snakemake", "dvc")):
        pytest.skip("needs the extra `workflow`")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the project without data, models, runs and results but for the packed models.

    A stand-in is called there in place of ``refblend``: a shell function is found before a program.
    """
    function = f'() {{ {sys.executable} {Path(__file__).with_name("fake_refblend.py")} "$@"; }}'
    monkeypatch.setenv("BASH_FUNC_refblend%%", function)
    for name in ("params", "requirements", "workflow", "src"):
        ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignore)
    shutil.copy(ROOT / "Snakefile", tmp_path)
    kept = tmp_path / "results" / "cpu" / "pieces" / "models.tar.xz"
    kept.parent.mkdir(parents=True)
    kept.symlink_to(ROOT / kept.relative_to(tmp_path))
    (tmp_path / "profiles").symlink_to("workflow/profiles")
    return tmp_path


@pytest.fixture
def commit(project: Path) -> Callable[[], None]:
    """Commits all of the project, which is under git and DVC as the checkout is."""
    for name in (".gitignore", ".dvcignore"):
        shutil.copy(ROOT / name, project)
    shutil.copytree(ROOT / ".dvc", project / ".dvc", ignore=shutil.ignore_patterns("cache", "tmp"))
    subprocess.run([*GIT, "init", "-q"], cwd=project, check=True)

    def commit_all() -> None:
        for command in (["add", "."], ["commit", "-qm", "all"]):
            subprocess.run([*GIT, *command], cwd=project, check=True)

    return commit_all

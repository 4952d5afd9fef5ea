"""The part of `benchmarks/wrong_inputs.py` that needs no models, in this process."""

import shlex
import sys
from pathlib import Path

import pytest
from wrong_inputs import CASES, ROOT, Case, faults, make_files

from refblend.cli.main import run

FAST = [c for c in CASES if not c.prepared and not c.command.startswith("snakemake")]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the parameters and the damaged files."""
    folder = tmp_path_factory.mktemp("wrong") / "project"
    folder.mkdir()
    for name in ("params", "results"):
        (folder / name).symlink_to(ROOT / name)
    make_files(folder / "made", None)
    return folder


def test_the_list_covers_every_group_of_commands() -> None:
    words = ("train", "check", "score", "judge", "evaluate", "data", "models", "plan", "study")
    for word in (*words, "snakemake", "runs"):
        assert any(case.command.split()[0] == word for case in CASES), word
    assert len(CASES) >= 60
    assert len({case.command for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", FAST, ids=lambda case: case.command.replace("/", "_"))
def test_it_is_refused_in_one_line(
    case: Case, project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project)
    monkeypatch.setattr(sys, "argv", ["refblend", *shlex.split(case.command)])
    before = sorted(project.rglob("*"))
    with pytest.raises(SystemExit) as stop:
        run()
    assert faults(case, int(stop.value.code or 0), capsys.readouterr().err) == []
    assert sorted(project.rglob("*")) == before, "nothing is written"

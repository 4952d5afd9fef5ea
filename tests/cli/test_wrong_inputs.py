"""Commands with something wrong in them end with status 2 and one line that names it."""

import csv
import shlex
import sys
from pathlib import Path

import pytest

from refblend.cli.main import run

ROOT = Path(__file__).resolve().parents[2]
SMOKE = "--config params/ppo.yaml --config params/scale/smoke.yaml"
with Path(__file__).with_name("wrong_inputs.csv").open(encoding="utf-8", newline="") as file:
    CASES = [(row["command"].replace("SMOKE", SMOKE), row["says"]) for row in csv.DictReader(file)]
"""What is called after ``refblend``, and what the message must say."""
FILES = {
    "broken.yaml": "trainer: {seed: 1\n",
    "list.yaml": "- 1\n- 2\n",
    "answers.jsonl": '{"question": "2+3?", "response": "5"}\n',
    "broken.tsv": "arm\tsead\noff\t1\n",
    "ragged.csv": "reward\n1\n1,2,3\n",
    "mixed.jsonl": "".join(
        f'{{"question": "2+3?", "response": "5", "id": {id}}}\n' for id in ("1", '"a"')
    ),
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the parameters and the damaged files."""
    folder = tmp_path_factory.mktemp("wrong")
    for name in ("params", "results"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "made").mkdir()
    for name, text in FILES.items():
        (folder / "made" / name).write_text(text)
    return folder


@pytest.mark.parametrize(("command", "says"), CASES)
def test_it_is_refused_in_one_line(command, says, project, monkeypatch, capsys) -> None:
    monkeypatch.chdir(project)
    monkeypatch.setattr(sys, "argv", ["refblend", *shlex.split(command)])
    before = sorted(project.rglob("*"))
    with pytest.raises(SystemExit) as stop:
        run()
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert stop.value.code == 2
    assert line.startswith("error: ")
    assert says in line
    assert sorted(project.rglob("*")) == before, "nothing is written"

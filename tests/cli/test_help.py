"""Help: every command stands in a panel and has an example whose names and options exist."""

from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from refblend.cli.main import app
from refblend.cli.runs import summary
from refblend.errors import ConfigError, DiskError


def commands(group: Any, *words: str) -> dict[str, Any]:
    """All commands below a group, by their words."""
    found: dict[str, Any] = {}
    for name, command in group.commands.items():
        path = (*words, name)
        below = getattr(command, "commands", None)
        found |= commands(command, *path) if below else {" ".join(path): command}
    return found


def shown(*words: str) -> str:
    done = CliRunner().invoke(app, [*words, "--help"], terminal_width=200)
    assert done.exit_code == 0, done.output
    return done.output


VISIBLE = {
    name: command
    for name, command in commands(typer.main.get_command(app)).items()
    if not command.hidden
}


@pytest.mark.parametrize("name", VISIBLE)
def test_every_command_has_an_example_that_names_what_exists(name: str) -> None:
    text, _, example = shown(*name.split()).partition("Example:")
    assert f"refblend {name}" in example
    options = [word for word in example.split() if word.startswith("--")]
    assert [option for option in options if f" {option} " not in text] == []


ALIKE = {"check", "pack", "unpack"}


def test_no_command_exists_twice() -> None:
    """Under another group a word means another thing: what it packs, shows or checks."""
    words = [name.split()[-1] for name in commands(typer.main.get_command(app))]
    assert {word for word in words if words.count(word) > 1} <= ALIKE


def test_evaluate_says_a_sentence() -> None:
    report = {"greedy": 0.5, "sampled": 0.25, "problems": 64, "samples": 1, "status": "finished"}
    assert summary(report) == "50.0% right greedily, 25.0% sampled, 64 problems"
    assert summary({"status": "failed"}) == "failed, nothing to measure"


def test_commands_stand_in_panels_with_whole_summaries() -> None:
    done = CliRunner().invoke(app, ["--help"], terminal_width=60).output
    assert done.index("Use:") < done.index("Study:")
    assert "Commands:" not in done, "one is in no panel"
    assert "..." not in done.partition("Use:")[2]
    assert " mark " not in shown("study"), "only the workflow calls it"


def test_runs_of_one_name_are_refused_before_an_engine_starts(tmp_path: Path) -> None:
    arms = [str(tmp_path / arm / "seed_1") for arm in ("off", "linear")]
    done = CliRunner().invoke(app, ["evaluate", *arms, "--data", "x", "--out", str(tmp_path / "o")])
    assert isinstance(done.exception, ConfigError)
    assert "several runs are called 1" in str(done.exception)


def test_a_tokenizer_is_not_written_over_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    recipe = Path(__file__).parents[2] / "params" / "embedded" / "smoke.yaml"
    asked = ["models", "tokenizer", "--recipe", str(recipe), "--out", str(tmp_path / "file")]
    done = CliRunner().invoke(app, asked)
    assert isinstance(done.exception, DiskError)
    assert (tmp_path / "file").read_text() == "kept"

"""The table of docs/how-to/planning.md is what its command prints today."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from refblend.cli.main import app

ROOT = Path(__file__).parents[2]


def test_the_predicted_table_is_the_commands_output(monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "how-to" / "planning.md").read_text(encoding="utf-8")
    section = page.partition("## Up to 64 nodes")[2].partition("\n## ")[0]
    (command,) = re.findall(r"```bash\nrefblend (plan-step .+?)```", section, re.DOTALL)
    monkeypatch.chdir(ROOT)
    done = CliRunner().invoke(app, command.replace("\\\n", " ").split())
    assert done.exit_code == 0, done.output
    printed = [line for line in done.stdout.splitlines() if line.startswith("|")]
    assert [line for line in section.splitlines() if line.startswith("|")] == printed
    assert len(printed) == 2 + 3 * 3
    assert "predicted" in section.partition("|")[0]

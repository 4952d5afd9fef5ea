"""The commands that open a report's study."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from refblend.cli.study import app
from refblend.errors import StudyError

PARAMS = Path(__file__).parents[2] / "params"


@pytest.mark.parametrize(
    ("milestone", "scale"), [("r", "cpu"), ("m1", "smollm"), ("m2", "smollm"), ("m3", "smollm")]
)
def test_a_scale_without_experiments_is_blamed_for_having_none(
    tmp_path: Path, milestone: str, scale: str
) -> None:
    roots = [str(tmp_path / name) for name in ("runs", "models", "results")]
    asked = ["--milestone", milestone, "--scale", scale, "--roots", *roots, str(PARAMS)]
    for command in ("tables", "report"):
        done = CliRunner().invoke(app, [command, *asked])
        assert isinstance(done.exception, StudyError)
        assert str(done.exception) == (
            f"no experiment of milestone {milestone} has seeds at --scale {scale}. Name another "
            f"--scale, or add seeds.{scale} to one of them in {PARAMS / 'study'}."
        )


def test_the_scoring_study_has_no_experiments_and_needs_none(tmp_path: Path) -> None:
    roots = [str(tmp_path / name) for name in ("runs", "models", "results")]
    asked = ["--milestone", "scoring", "--scale", "cpu", "--roots", *roots, str(PARAMS)]
    done = CliRunner().invoke(app, ["tables", *asked])
    assert "has seeds" not in str(done.exception)

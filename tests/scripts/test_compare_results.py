"""The comparison of two studies' tables."""

from pathlib import Path

import compare_results
import pytest
import typer
from typer.testing import CliRunner

TABLE = "arm,seed,accuracy,wall_time_s,note\noff,1,0.25,10,fine\nlinear,1,0.5,20,\n"


def compare(*folders: Path) -> tuple[int, str]:
    """Calls the script: status and output."""
    app = typer.Typer()
    app.command()(compare_results.main)
    result = CliRunner().invoke(app, [str(folder) for folder in folders], env={"COLUMNS": "200"})
    return result.exit_code, result.output


@pytest.fixture
def folders(tmp_path) -> tuple[Path, Path]:
    """Two studies with the same table."""
    both = tmp_path / "a", tmp_path / "b"
    for folder in both:
        (folder / "m1").mkdir(parents=True)
        (folder / "m1" / "per_seed.csv").write_text(TABLE)
        (folder / "m1" / "resources.csv").write_text(f"arm,x\noff,{folder.name}\n")
    return both


def test_two_honest_machines_agree(folders) -> None:
    runs = "arm,seed,status,steps,wall_time_s,resumed,commit,dirty,hardware,models\n"
    long = "arm,measure,mean,diff\noff,test_greedy,0.5,\noff,step_seconds,{0},\n"
    long += "off,memory_gb,{0},\noff,judge_seconds,,{0}\nlinear,test_greedy,0.6,{1}\n"
    for folder, origin in zip(
        folders, ("20,0,ab12,False,two cores,actor 1", "30,1,cd34,True,a GPU,actor 2"), strict=True
    ):
        (folder / "runs.csv").write_text(f"{runs}off,1,finished,20,{origin}\n")
        (folder / "confirmation.csv").write_text(long.format(len(origin), 0.1))
    status, output = compare(*folders)
    assert status == 0, output
    # What remains of them: four cells, two rows of four, and eight of the table of all studies.
    assert [cell.strip() for cell in output.split("all ")[1].split("│")[1:4]] == ["20"] * 3
    (folders[1] / "confirmation.csv").write_text(long.format(7, 0.2))
    status, output = compare(*folders)
    assert status == 1
    assert "diff, row 5" in output


@pytest.mark.parametrize(
    ("old", "new", "status", "said"),
    [
        (",10,", ",11,", 0, "all"),  # a cost
        ("0.25", "0.250001", 0, "4e-06"),
        ("0.25", "0.2501", 1, "accuracy, row 1"),
        ("fine", "broken", 1, "note, row 1"),
        ("0.5,", ",", 1, "accuracy, row 2"),
        ("linear,1,0.5,20,\n", "", 1, "shapes"),
    ],
)
def test_differences_are_found(folders, old, new, status, said) -> None:
    (folders[1] / "m1" / "per_seed.csv").write_text(TABLE.replace(old, new))
    found, output = compare(*folders)
    assert found == status, output
    assert said in output

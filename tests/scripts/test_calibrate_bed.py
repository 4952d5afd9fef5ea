"""What a candidate's folder holds is used only for the recipe that made it."""

import shutil
from pathlib import Path

import calibrate_bed
import pytest
import yaml

ROOT = Path(__file__).parents[2]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the command line was asked to make, in a project with the recipe alone."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / calibrate_bed.RECIPE).parent.mkdir(parents=True)
    shutil.copy(ROOT / calibrate_bed.RECIPE, tmp_path / calibrate_bed.RECIPE)
    (tmp_path / "models" / "cpu" / "actor_clean").mkdir(parents=True)
    commands: list[str] = []

    def stand_in(*arguments: str | Path) -> None:
        commands.append(str(arguments[1]))
        out = Path(arguments[arguments.index("--out") + 1])
        out.mkdir(parents=True)
        (out / {"prepare": "train.parquet", "actor": "model.safetensors"}[commands[-1]]).touch()

    monkeypatch.setattr(calibrate_bed, "refblend", stand_in)
    return commands


def test_a_folder_that_another_recipe_made_is_refused(tmp_path: Path, made: list[str]) -> None:
    work, key = tmp_path / "work", "data.train_rows"
    bed = {"recipe": {key: 100}}
    arguments = calibrate_bed.make_bed("short", bed, work)
    assert calibrate_bed.make_bed("short", bed, work) == arguments
    assert made == ["prepare", "actor"], "the second time they are there"
    recipe = work / "short" / "recipe.yaml"
    before = recipe.read_text()
    with pytest.raises(SystemExit, match="candidate short has another recipe now") as caught:
        calibrate_bed.make_bed("short", {"recipe": {key: 200}}, work)
    assert str(recipe) in str(caught.value)
    assert f"Remove {work / 'short'}" in str(caught.value)
    assert recipe.read_text() == before, "it still says what made the folder"
    own = tmp_path / calibrate_bed.RECIPE
    values = yaml.safe_load(own.read_text())
    own.write_text(yaml.safe_dump(calibrate_bed.overridden(values, {"data.test_rows": 7})))
    with pytest.raises(SystemExit, match="another recipe"):
        calibrate_bed.make_bed("short", bed, work)
    assert made == ["prepare", "actor"]

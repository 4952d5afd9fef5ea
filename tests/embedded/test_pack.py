"""Models that go to another machine in one file."""

import os
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from fuzz_support import content
from typer.testing import CliRunner

from refblend.cli.main import app
from refblend.embedded.pack import PARTS, PURPOSES, RECORD_NAME, pack_models, unpack_models
from refblend.embedded.recipe import EmbeddedConfig
from refblend.errors import ModelError


@pytest.fixture
def models(tmp_path) -> Path:
    folder = tmp_path / "here"
    for name in PARTS:
        (folder / name).mkdir(parents=True)
        (folder / name / "weights").write_bytes(name.encode())
        os.utime(folder / name / "weights", (1, 1))
        if name not in ("tokenizer", "judge_pairs"):
            (folder / name / "training.json").write_text("{}")
    return folder


def changed(recipe: EmbeddedConfig, **sections: dict[str, Any]) -> EmbeddedConfig:
    values = recipe.model_dump(mode="json")
    for name, section in sections.items():
        values[name] |= section
    return EmbeddedConfig.model_validate(values)


def test_models_travel_and_count_as_new(tmp_path, models, recipe) -> None:
    path, pack, there = tmp_path / "recipe.yaml", tmp_path / "m.tar.xz", tmp_path / "there"
    path.write_text(yaml.safe_dump(recipe.model_dump(mode="json")))
    (there / "actor").mkdir(parents=True)
    (there / "actor" / "training.json").touch()
    (there / "actor" / "left_over").touch()
    (models / "quality").mkdir()
    cli = CliRunner()
    done = cli.invoke(app, ["models", "pack", str(pack), str(models), "--recipe", str(path)])
    assert done.exit_code == 0, done.output
    done = cli.invoke(app, ["models", "unpack", str(pack), str(there), "--recipe", str(path)])
    assert done.exit_code == 0, done.output
    wanted = content(models)
    assert content(there) == wanted
    # Snakemake must not take them for older than the recipe.
    assert all((there / name).stat().st_mtime >= path.stat().st_mtime for name in wanted)


def test_models_of_another_recipe_are_refused(tmp_path, models, recipe) -> None:
    pack, there = tmp_path / "m.tar.xz", tmp_path / "there"
    pack_models(models, recipe, pack)
    other = changed(recipe, actor={"seed": 9}, judge={"batch_size": 5})
    with pytest.raises(ModelError, match=r"actor\.seed 2, not 9; judge\.batch_size 4, not 5"):
        unpack_models(pack, other, there)
    assert content(there) == {}
    measured = changed(recipe, evaluation={"problems": 5})
    record = unpack_models(pack, measured, there)
    assert set(record["numerics"]) == set(PURPOSES)


def test_files_of_the_users_own_are_refused(tmp_path, models, recipe) -> None:
    pack, there = tmp_path / "m.tar.xz", tmp_path / "there"
    pack_models(models, recipe, pack)
    for name in ("actor/mine", "tokenizer/weights", "judge_pairs/mine"):
        mine = there / name
        mine.parent.mkdir(parents=True)
        mine.write_text("mine")
        with pytest.raises(ModelError, match=f"{mine.parent} holds other files"):
            unpack_models(pack, recipe, there)
        assert content(there) == {name: b"mine"}
        mine.unlink()
    for _ in range(2):
        unpack_models(pack, recipe, there)


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        (RECORD_NAME, "[]", "cannot be unpacked"),
        (RECORD_NAME, '{"recipe": [], "hardware": {}}', "cannot be unpacked"),
        ("off/seed_1/identity.json", "{}", r"holds no models\..*Unpack runs with `tar`"),
    ],
)
def test_a_pack_without_a_record_is_refused(tmp_path, name, text, told, recipe) -> None:
    (tmp_path / "file").write_text(text)
    with tarfile.open(tmp_path / "p.tar.xz", "w:xz") as archive:
        archive.add(tmp_path / "file", name)
    with pytest.raises(ModelError, match=told):
        unpack_models(tmp_path / "p.tar.xz", recipe, tmp_path / "there")

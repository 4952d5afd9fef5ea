import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from refblend.cli.data import app as data_app
from refblend.cli.models import app as models_app
from refblend.embedded.architecture import save_model
from refblend.embedded.recipe import EmbeddedConfig
from refblend.errors import ModelError


@pytest.fixture
def recipe_file(tmp_path: Path, recipe: EmbeddedConfig) -> Path:
    values = recipe.model_dump(mode="json")
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


def run(app: Any, *arguments: object) -> str:
    result = CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_prepare_and_tokenizer(tmp_path: Path, recipe_file: Path) -> None:
    assert "train: 24 rows" in run(
        data_app, "prepare", "--recipe", recipe_file, "--out", tmp_path / "data"
    )
    run(models_app, "tokenizer", "--recipe", recipe_file, "--out", tmp_path / "tokenizer")
    assert (tmp_path / "tokenizer" / "tokenizer.json").is_file()


def test_evaluate_actor_writes_a_report(
    tmp_path: Path, recipe_file: Path, recipe: EmbeddedConfig, tokenizer: Any, model: Any
) -> None:
    from refblend.embedded.prepare import prepare_splits

    save_model(tmp_path / "model", model, tokenizer, {})
    prepare_splits(recipe.data, tmp_path / "data")
    report = tmp_path / "report.json"
    run(
        models_app,
        "evaluate-actor",
        *("--recipe", recipe_file, "--model", tmp_path / "model"),
        *("--data", tmp_path / "data" / "test.parquet", "--report", report),
    )
    assert json.loads(report.read_text())["model"] == "model"


def test_a_missing_model_is_named(tmp_path: Path, recipe_file: Path) -> None:
    with pytest.raises(ModelError, match=r"--model: .*none is not a directory"):
        run(
            models_app,
            "evaluate-actor",
            *("--recipe", recipe_file, "--model", tmp_path / "none"),
            *("--data", tmp_path / "x.parquet", "--report", tmp_path / "r.json"),
        )

from pathlib import Path

import pytest

from refblend.data.schema import read_rows
from refblend.embedded.prepare import prepare_splits
from refblend.embedded.recipe import EmbeddedConfig, load_recipe
from refblend.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("scale", ["smoke", "cpu"])
def test_committed_recipes_load(scale: str) -> None:
    load_recipe(ROOT / "params" / "embedded" / f"{scale}.yaml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("data: {rows: 3}", "unknown key data.rows"),
        ("data: {train_rows: 0}", "data.train_rows"),
        ("judge: {steps: {weak: 9, medium: 5}}", "judge.steps: steps must rise"),
        ("architecture: {num_heads: 3}", "architecture: hidden_size must be a multiple"),
        ("architecture: {num_heads: 8}", "architecture: hidden_size / num_heads must be one of"),
        ("[1]", "is not a mapping"),
        ("a: [", "not valid YAML"),
    ],
)
def test_wrong_recipes_name_the_key(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_recipe(path)


def test_prepared_files(recipe: EmbeddedConfig, tmp_path: Path) -> None:
    counts = prepare_splits(recipe.data, tmp_path)
    rows = {name: read_rows(tmp_path / f"{name}.parquet") for name in counts}
    assert {name: len(found) for name, found in rows.items()} == counts
    assert counts == {"train": 24, "validation": 6, "test": 8, "sanity": 4}
    assert {row.data_source for row in rows["sanity"]} == {"refblend/sanity"}
    assert {row.data_source for row in rows["test"]} == {"refblend/arithmetic"}
    assert all(row.extra["n_steps"] == 1 for row in rows["sanity"])
    keys = [{row.extra["template"] for row in found} for found in rows.values()]
    assert sum(map(len, keys)) == len(set.union(*keys))
    for row in rows["train"]:
        assert row.solution.endswith(f"#### {row.ground_truth}")

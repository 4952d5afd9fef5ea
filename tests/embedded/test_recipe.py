from pathlib import Path

import pytest

from refblend.embedded.recipe import load_recipe
from refblend.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("data: {rows: 3}", "unknown key data.rows"),
        ("data: {train_rows: 0}", "data.train_rows"),
        ("judge: {steps: {weak: 9, medium: 5}}", "judge.steps: steps must rise"),
        ("architecture: {num_heads: 3}", "architecture: hidden_size must be a multiple"),
        ("architecture: {num_heads: 8}", "architecture: hidden_size / num_heads must be one of"),
    ],
)
def test_wrong_recipes_name_the_key(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_recipe(path)

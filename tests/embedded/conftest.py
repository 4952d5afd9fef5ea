from pathlib import Path
from typing import Any

import pytest
import torch

from refblend.embedded.architecture import build_model
from refblend.embedded.demonstrations import build_tokenizer
from refblend.embedded.recipe import EmbeddedConfig, load_recipe
from refblend.scoring.templates import ScoringTemplates, load_templates


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def recipe() -> EmbeddedConfig:
    return load_recipe(Path(__file__).with_name("tiny.yaml"))


@pytest.fixture(scope="session")
def templates() -> ScoringTemplates:
    return load_templates("embedded")


@pytest.fixture(scope="session")
def tokenizer(recipe: EmbeddedConfig, templates: ScoringTemplates) -> Any:
    return build_tokenizer(recipe, templates)


@pytest.fixture
def model(recipe: EmbeddedConfig, tokenizer: Any) -> Any:
    return build_model(recipe.architecture, tokenizer, seed=1)

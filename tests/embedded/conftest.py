from typing import Any

import pytest
import torch

from refblend.embedded.architecture import build_model
from refblend.embedded.recipe import EmbeddedConfig
from refblend.embedded.tokenizer_texts import build_tokenizer
from refblend.scoring.templates import ScoringTemplates, load_templates

TINY = EmbeddedConfig.model_validate(
    {
        "data": {
            "train_rows": 24,
            "validation_rows": 6,
            "test_rows": 8,
            "sanity_rows": 4,
            "long_share": 0.1,
        },
        "tokenizer": {"corpus_problems": 60, "vocab_size": 360},
        "architecture": {
            "hidden_size": 32,
            "num_layers": 2,
            "num_heads": 1,
            "num_kv_heads": 1,
            "mlp_size": 32,
        },
        "actor": {"clean": {"steps": 6, "batch_size": 4}, "sloppy": {"steps": 3, "batch_size": 4}},
        "judge_data": {"problems": 10, "test_problems": 6, "max_response_tokens": 12},
        "judge": {"steps": {"weak": 2, "medium": 4, "strong": 6}, "batch_size": 4},
        "evaluation": {"problems": 6, "samples": 2, "max_new_tokens": 12},
    }
)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def recipe() -> EmbeddedConfig:
    return TINY


@pytest.fixture(scope="session")
def templates() -> ScoringTemplates:
    return load_templates("embedded")


@pytest.fixture(scope="session")
def tokenizer(recipe: EmbeddedConfig, templates: ScoringTemplates) -> Any:
    return build_tokenizer(recipe, templates)


@pytest.fixture
def model(recipe: EmbeddedConfig, tokenizer: Any) -> Any:
    return build_model(recipe.architecture, tokenizer, seed=1)

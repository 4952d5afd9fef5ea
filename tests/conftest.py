"""Shared fixtures: a tiny tokenizer, model, data set and configuration, made in a moment.

The model has about 0.1M random weights, large enough that its outputs vary with the prompt.
Everything is seeded, so two test sessions see the same files.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from refblend import runtime

runtime.configure_process(1)

# No deadline, since machines are shared; no chance, and no database of earlier runs.
settings.register_profile(
    "refblend",
    max_examples=60,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
settings.load_profile("refblend")
# For `make fuzz`: many more cases, others every time.
settings.register_profile("fuzz", max_examples=2000, derandomize=False)

from refblend.config import RefblendConfig, load_config  # noqa: E402
from refblend.config.loading import merge  # noqa: E402

ROOT = Path(__file__).parents[1]
MAX_POSITIONS = 1024


@pytest.fixture(scope="session")
def tiny_tokenizer_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A byte-level BPE with ChatML that knows the embedded problems and scoring prompts."""
    from refblend.embedded.demonstrations import build_tokenizer
    from refblend.embedded.recipe import EmbeddedConfig, TokenizerRecipe
    from refblend.scoring.templates import load_templates

    recipe = EmbeddedConfig(
        tokenizer=TokenizerRecipe(
            vocab_size=480,
            corpus_problems=200,
            wrong_step_probability=0.35,
            model_max_length=MAX_POSITIONS,
        )
    )
    path = tmp_path_factory.mktemp("tokenizer")
    build_tokenizer(recipe, load_templates("embedded")).save_pretrained(path)
    return path


def make_model(path: Path, tokenizer_dir: Path, seed: int, **changes: Any) -> Path:
    """Write a random Qwen2 with tied embeddings, and the tokenizer, to ``path``."""
    import torch
    from transformers import GenerationConfig, Qwen2Config, Qwen2ForCausalLM

    from refblend.data.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(tokenizer_dir)
    shape: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": MAX_POSITIONS,
        "initializer_range": 0.15,
        "tie_word_embeddings": True,
    }
    config = Qwen2Config(
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        dtype="float32",
        **shape | changes,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen2ForCausalLM(config)
    model.generation_config = GenerationConfig(
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


@pytest.fixture(scope="session")
def make_tiny_model(tmp_path_factory, tiny_tokenizer_dir) -> Callable[..., Path]:
    """``make_tiny_model(seed, tokenizer, **config_changes)`` → a new model directory."""

    def make(seed: int, tokenizer: Path = tiny_tokenizer_dir, **changes: Any) -> Path:
        return make_model(tmp_path_factory.mktemp("model"), tokenizer, seed, **changes)

    return make


@pytest.fixture(scope="session")
def tiny_model_dir(make_tiny_model: Callable[..., Path]) -> Path:
    """A random Qwen2 of about 0.1M parameters with its tokenizer."""
    return make_tiny_model(0)


@pytest.fixture(scope="session")
def tiny_data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``train``, ``validation``, ``test`` and ``sanity`` parquet files of 64, 16, 16, 8 rows."""
    from refblend.data.splits import write_splits
    from refblend.embedded.prepare import recipe_rows
    from refblend.embedded.recipe import DataRecipe, EmbeddedConfig

    path = tmp_path_factory.mktemp("data")
    recipe = DataRecipe(
        train_rows=64, validation_rows=16, test_rows=16, sanity_rows=8, long_share=0.0
    )
    write_splits(path, recipe_rows(EmbeddedConfig(data=recipe)))
    return path


@pytest.fixture(scope="session")
def tiny_tree(tiny_model_dir: Path, tiny_data_dir: Path) -> dict[str, Any]:
    """Keys of a configuration: four prompts × two responses of at most 12 tokens, judged by the
    tiny model."""
    engine = {"kv_cache_memory_mb": 32}
    files = {
        "train_files": [str(tiny_data_dir / "train.parquet")],
        "val_files": [str(tiny_data_dir / "validation.parquet")],
        "sanity_files": [str(tiny_data_dir / "sanity.parquet")],
    }
    scoring = {"model_path": str(tiny_model_dir), "templates": "embedded"}
    limits = {"max_model_len": 768, "max_new_tokens": 16, "max_invalid_rate": 1.0}
    return {
        "data": {
            **files,
            "max_prompt_length": 160,
            "max_response_length": 12,
            "train_batch_size": 4,
            "max_val_samples": 8,
        },
        "actor_rollout_ref": {
            "model": {"path": str(tiny_model_dir)},
            "actor": {"optim": {"lr": 1e-3}},
            "rollout": {"n": 2, "max_model_len": 256, "val_kwargs": {"n": 1}, **engine},
        },
        "critic": {"optim": {"lr": 1e-3}},
        "algorithm": {"ref_quality_score": {"scoring": scoring | limits | engine}},
        "trainer": {"rollout_dump_freq": 1, "energy": False},
        "ray": {"object_store_memory_mb": 80},
    }


@pytest.fixture
def tiny_config(tmp_path: Path, tiny_tree: dict[str, Any]) -> Callable[..., RefblendConfig]:
    """``tiny_config(*overrides)`` → a configuration; overrides are ``a.b.c=value`` texts.

    A mapping may be given too; it is merged over the defaults before the texts.
    """
    own = {
        "algorithm": {"adv_estimator": "grpo", "ref_quality_score": {"enable": True}},
        "trainer": {
            "total_training_steps": 2,
            "save_freq": 1,
            "test_freq": 1,
            "default_local_dir": str(tmp_path / "runs" / "tiny" / "seed_1"),
            "logger": ["console"],
        },
    }

    def make(*overrides: str | dict[str, Any], **more: Any) -> RefblendConfig:
        import yaml

        tree = merge(tiny_tree, own)
        texts = [text for text in overrides if isinstance(text, str)]
        for change in [*(o for o in overrides if not isinstance(o, str)), more]:
            tree = merge(tree, change)
        path = tmp_path / "config.yaml"
        path.write_text(yaml.safe_dump(tree))
        return load_config([path], texts)

    return make

"""The network of actor and judge: a small Qwen2, saved and loaded in Hugging Face format.

A trained model carries a fingerprint of all that it was made from, so that no judge continues from
one of another recipe.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, GenerationConfig, Qwen2Config, Qwen2ForCausalLM

from refblend.embedded.recipe import ArchitectureRecipe, EmbeddedConfig
from refblend.errors import ModelError, first_line
from refblend.rollout.model_dir import check_model_dir
from refblend.seeding import derive_seed


def build_model(recipe: ArchitectureRecipe, tokenizer: Any, seed: int) -> Qwen2ForCausalLM:
    """The network of actor and judge before its training; weights drawn from ``seed``."""
    return random_qwen2(recipe, tokenizer, derive_seed(seed, "weights"))


def random_qwen2(
    recipe: ArchitectureRecipe, tokenizer: Any, seed: int, vocab_size: int | None = None
) -> Qwen2ForCausalLM:
    """A Qwen2 with torch's random weights; embeddings tied, float32, all tokens by default."""
    config = Qwen2Config(
        vocab_size=vocab_size or len(tokenizer),
        hidden_size=recipe.hidden_size,
        intermediate_size=recipe.mlp_size,
        num_hidden_layers=recipe.num_layers,
        num_attention_heads=recipe.num_heads,
        num_key_value_heads=recipe.num_kv_heads,
        max_position_embeddings=recipe.max_positions,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        attention_dropout=0.0,
        use_sliding_window=False,
        dtype="float32",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Qwen2ForCausalLM(config)


def load_model(path: str | os.PathLike[str]) -> Any:
    """Load a causal language model from a local directory, float32; ModelError if it cannot be."""
    path = check_model_dir(os.fspath(path), "model")
    try:
        return AutoModelForCausalLM.from_pretrained(
            path, dtype=torch.float32, local_files_only=True, use_safetensors=True
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise ModelError(
            f"{path} cannot be loaded ({first_line(error)})",
            "Give a complete model directory in Hugging Face format.",
        ) from error


def save_model(
    path: str | os.PathLike[str],
    model: Any,
    tokenizer: Any,
    facts: dict[str, Any],
    extra: Callable[[Path], None] | None = None,
) -> None:
    """Write weights, tokenizer and ``training.json`` beside ``path``, then move them there.

    The directory is hashed: ``facts`` holds neither times nor paths. ``extra`` may add files.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    model.generation_config = generation_config(tokenizer)
    model.save_pretrained(temporary)
    tokenizer.save_pretrained(temporary)
    text = json.dumps(facts, indent=2, sort_keys=True) + "\n"
    (temporary / "training.json").write_text(text, encoding="utf-8")
    if extra is not None:
        extra(temporary)
    if path.exists():
        shutil.rmtree(path)
    temporary.rename(path)


def generation_config(tokenizer: Any) -> GenerationConfig:
    """The tokens that end and pad what the model writes."""
    return GenerationConfig(
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )


def count_parameters(model: Any) -> int:
    """Number of trainable parameters, tied ones counted once."""
    return sum(parameter.numel() for parameter in model.parameters())


_PARTS: dict[str, tuple[str, ...]] = {
    "actor_clean": ("data.difficulty", "data.long_share", "architecture", "actor.clean"),
    "actor": ("data.difficulty", "data.long_share", "architecture", "actor"),
    "judge": ("data.difficulty", "data.long_share", "architecture", "actor", "judge_data", "judge"),
}


def fingerprint_of(recipe: EmbeddedConfig, tokenizer: Any, what: str, *more: str) -> str:
    """Hash of the tokenizer and of the recipe's parts that ``what`` is made from, and ``more``."""
    values = recipe.model_dump(mode="json")
    parts: dict[str, Any] = {"actor.seed": values["actor"]["seed"]}
    for name in _PARTS[what]:
        value: Any = values
        for key in name.split("."):
            value = value[key]
        parts[name] = value
    if recipe.pretrained is not None:  # which learns the train split itself
        parts |= {"pretrained": values["pretrained"], "data": values["data"]}
    digest = hashlib.sha256(json.dumps([what, parts, more], sort_keys=True).encode())
    digest.update(tokenizer.backend_tokenizer.to_str().encode())
    return digest.hexdigest()[:32]

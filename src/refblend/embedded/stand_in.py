"""Models of Qwen2.5's architecture with random weights, where a real one cannot be had.

Architecture, special tokens, chat template and the tokenizer's kind (byte-level BPE with Qwen2's
pre-tokeniser) are those of the real model; only sizes, vocabulary and weights are not.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from refblend.data.tokenizer import train_tokenizer
from refblend.embedded.architecture import generation_config, random_qwen2
from refblend.embedded.recipe import ArchitectureRecipe

QWEN_PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""What Qwen2's tokenizer cuts a text into before it merges pairs of bytes."""


TINY = ArchitectureRecipe(mlp_size=512, num_layers=6, max_positions=4096)
"""About two million parameters with 4,096 tokens."""
HALF_BILLION = ArchitectureRecipe(
    hidden_size=896, mlp_size=4864, num_layers=24, num_heads=14, max_positions=32_768
)
"""Qwen2.5-0.5B: 494 million parameters with 151,936 tokens, tied embeddings."""


def qwen_tokenizer(texts: Iterable[str], vocab_size: int = 4096) -> Any:
    """A tokenizer of Qwen2's kind, trained on texts."""
    return train_tokenizer(texts, vocab_size, 131_072, QWEN_PIECES)


def write_stand_in(path: Path, tokenizer: Any, seed: int, tiny: bool = True) -> None:
    """Write model and tokenizer (of :func:`qwen_tokenizer`) as a Hugging Face directory."""
    shape, tokens = (TINY, None) if tiny else (HALF_BILLION, 151_936)
    model = random_qwen2(shape, tokenizer, seed, tokens)
    model.generation_config = generation_config(tokenizer)
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)

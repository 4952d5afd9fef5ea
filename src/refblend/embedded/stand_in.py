"""Models of Qwen2.5's architecture with random weights, where a real one cannot be had.

Architecture, special tokens, chat template and the tokenizer's kind (byte-level BPE with Qwen2's
pre-tokeniser) are those of the real model; only sizes, vocabulary and weights are not.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from refblend.data.tokenizer import train_tokenizer

QWEN_PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""What Qwen2's tokenizer cuts a text into before it merges pairs of bytes."""


@dataclass(frozen=True)
class Shape:
    """Sizes of a model; the defaults give about two million parameters with 4,096 tokens."""

    hidden_size: int = 128
    intermediate_size: int = 512
    layers: int = 6
    heads: int = 4
    kv_heads: int = 2
    vocab_size: int | None = None
    """Null: as many as the tokenizer has."""
    positions: int = 4096


HALF_BILLION = Shape(896, 4864, 24, 14, 2, vocab_size=151_936, positions=32_768)
"""Qwen2.5-0.5B: 494 million parameters, tied embeddings."""


def qwen_tokenizer(texts: Iterable[str], vocab_size: int = 4096) -> Any:
    """A tokenizer of Qwen2's kind, trained on texts."""
    return train_tokenizer(texts, vocab_size, 131_072, QWEN_PIECES)


def write_stand_in(path: Path, tokenizer: Any, shape: Shape, seed: int) -> None:
    """Write model and tokenizer as a Hugging Face directory.

    Args:
        path: the directory.
        tokenizer: of :func:`qwen_tokenizer`.
        shape: sizes of the model.
        seed: of the weights.
    """
    from transformers import GenerationConfig, Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        vocab_size=shape.vocab_size or len(tokenizer),
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        max_position_embeddings=shape.positions,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        dtype="float32",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen2ForCausalLM(config)
    model.generation_config = GenerationConfig(
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)

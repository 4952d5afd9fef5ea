"""Guided decoding for the transformers engine, by the library that vLLM's engine uses too.

xgrammar turns a regular expression into the set of tokens allowed next. vLLM does this itself when
a request has a ``regex``; here the sampling loop asks for each row's mask.
"""

from collections.abc import Sequence
from typing import Any

import torch
import xgrammar
from torch import Tensor


class GuideFactory:
    """Guides for one tokenizer; an expression is compiled once.

    Args:
        tokenizer: of transformers.
        vocab_size: width V of the model's logits; it may exceed the tokenizer's vocabulary.
        stop_ids: tokens that end an answer.
    """

    def __init__(self, tokenizer: Any, vocab_size: int, stop_ids: Sequence[int]) -> None:
        info = xgrammar.TokenizerInfo.from_huggingface(
            tokenizer, vocab_size=vocab_size, stop_token_ids=list(stop_ids)
        )
        self.vocab_size = vocab_size
        self._compiler = xgrammar.GrammarCompiler(info)

    def guide(self, regex: str) -> "Guide":
        """A guide at the start of an answer that must match ``regex`` as a whole."""
        return Guide(xgrammar.GrammarMatcher(self._compiler.compile_regex(regex)), self.vocab_size)


class Guide:
    """Keeps one answer within its expression, token by token."""

    def __init__(self, matcher: xgrammar.GrammarMatcher, vocab_size: int) -> None:
        self._matcher = matcher
        self._mask = xgrammar.allocate_token_bitmask(1, vocab_size)

    def restrict(self, logits: Tensor) -> None:
        """Set the logits (V,) of tokens that may not come next to −∞, in place."""
        self._matcher.fill_next_token_bitmask(self._mask)
        allowed = self._mask.view(torch.uint8)[0]
        bits = allowed[:, None] >> torch.arange(8, dtype=torch.uint8) & 1
        forbidden = bits.flatten()[: len(logits)] == 0
        logits.masked_fill_(forbidden.to(logits.device), -torch.inf)

    def accept(self, token: int) -> None:
        """Move on by the chosen token, which :meth:`restrict` has allowed."""
        accepted = self._matcher.accept_token(token)
        assert accepted, f"token {token} is outside the guide"

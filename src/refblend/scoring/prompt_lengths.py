"""How much of a user's rows the judge will see whole, before anything is trained."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from refblend.config.algorithm import RefQualityScoreConfig
from refblend.scoring.generative import without_engine
from refblend.scoring.request import plan_request

KINDS = ("vllm", "hf")
"""Kinds of judges whose prompts are made here, of our templates."""


@dataclass(frozen=True)
class PromptShares:
    """Shares in [0, 1] of prompts with examples, of whole compact ones, and of cut ones."""

    full: float
    compact: float
    clipped: float
    allowed_length: int
    """The longest prompt, in tokens."""

    def __str__(self) -> str:
        return (
            f"{self.full:.1%} full, {self.compact:.1%} compact, {self.clipped:.1%} clipped "
            f"(at most {self.allowed_length} tokens)"
        )


def prompt_shares(
    config: RefQualityScoreConfig, samples: Sequence[tuple[str, str]]
) -> PromptShares:
    """What the length guards of a judge of :data:`KINDS` would do to (question, response) pairs.

    Raises:
        ScoringError: the templates themselves do not fit.
    """
    encoder, options = without_engine(config)
    allowed = options.limits.allowed_length
    seen = Counter[str]()
    for question, response in samples:
        request = plan_request(encoder, question, response, allowed, options.form)
        seen["clipped" if request.clipped else request.template] += 1
    shares = {name: seen[name] / len(samples) for name in ("full", "compact", "clipped")}
    return PromptShares(**shares, allowed_length=allowed)

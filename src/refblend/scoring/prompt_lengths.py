"""How much of a user's rows the judge will see whole, before anything is trained."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from refblend.config.algorithm import RefQualityScoreConfig
from refblend.data.tokenizer import load_tokenizer
from refblend.rollout.model_dir import resolve_max_model_len
from refblend.scoring.clipping import check_frame
from refblend.scoring.generative import JudgeOptions
from refblend.scoring.prompts import PromptEncoder
from refblend.scoring.request import plan_request
from refblend.scoring.templates import load_templates

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
    """What the length guards would do to samples, by the judge's own tokenizer and caps.

    Args:
        config: of a judge of one of :data:`KINDS`.
        samples: pairs of question and response, at least one.

    Raises:
        ScoringError: the templates themselves do not fit.
    """
    scoring = config.scoring
    assert scoring.model_path is not None, "checked by the configuration"
    directory = Path(scoring.model_path)
    tokenizer = load_tokenizer(directory)
    model_cap = resolve_max_model_len(directory, scoring.max_model_len)
    options = JudgeOptions.from_config(config, model_cap, tokenizer.model_max_length)
    encoder = PromptEncoder(tokenizer, load_templates(scoring.templates))
    check_frame(encoder.frame("compact"), options.limits)
    allowed = options.limits.allowed_length
    seen = Counter[str]()
    for question, response in samples:
        request = plan_request(encoder, question, response, allowed, options.form)
        seen["clipped" if request.clipped else request.template] += 1
    shares = {name: seen[name] / len(samples) for name in ("full", "compact", "clipped")}
    return PromptShares(**shares, allowed_length=allowed)

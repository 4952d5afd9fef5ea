"""From one question and response to a request within the cap, and from tokens to a result.

The order of the guards is the spec's: full few-shot prompt → compact template when the full
prompt would not fit → hard clip, or the request is flagged ``overlength`` and never submitted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from refblend.scoring.clipping import (
    ScoringLimits,
    check_frame,
    clip_parts,
)
from refblend.scoring.parsing import ScoreMode, TopLogprobs, parse_score
from refblend.scoring.prompts import PromptEncoder, encoder_for
from refblend.scoring.result import JudgeResult
from refblend.scoring.templates import ScoringTemplates

__all__ = [
    "JudgeResult",
    "ScoringLimits",
    "ScoringRequest",
    "check_templates",
    "error_result",
    "interpret",
    "overlength_result",
    "plan_encoded",
    "plan_scoring",
]


@dataclass(frozen=True)
class ScoringRequest:
    """A prompt ready for the judge's engine.

    Attributes:
        token_ids: the prompt, L tokens, no padding.
        attention_mask: L ones.
        position_ids: 0 … L − 1, recomputed after clipping.
        template: the form used.
        clipped: whether response or question was cut.
        overlength: too long and not clipped: must not be submitted.
        unclipped_length: tokens before clipping.
    """

    token_ids: list[int]
    attention_mask: list[int]
    position_ids: list[int]
    template: Literal["full", "compact"]
    clipped: bool
    overlength: bool
    unclipped_length: int


def check_templates(tokenizer: Any, templates: ScoringTemplates, limits: ScoringLimits) -> None:
    """Refuse, before any work, templates that cannot fit within the limits.

    Raises:
        ScoringError: the compact form leaves no room for a sample.
    """
    check_frame(encoder_for(tokenizer, templates).frame(few_shot=False), limits)


def plan_scoring(
    question: str,
    response: str,
    tokenizer: Any,
    templates: ScoringTemplates,
    limits: ScoringLimits,
    few_shot: bool = True,
    hard_clip: bool = True,
) -> ScoringRequest:
    """Choose the template, encode, and keep the prompt within ``limits.allowed_length``.

    Args:
        question: the problem; untrusted.
        response: the answer to judge; untrusted.
        tokenizer: the judge's.
        templates: the prompt's texts.
        limits: length caps.
        few_shot: try the full form first; otherwise the compact form only.
        hard_clip: cut what is still too long; otherwise flag it ``overlength``.

    Raises:
        ScoringError: the compact template does not fit at all (a configuration error).
    """
    encoder = encoder_for(tokenizer, templates)
    return plan_encoded(encoder, question, response, limits, few_shot, hard_clip)


def plan_encoded(
    encoder: PromptEncoder,
    question: str,
    response: str,
    limits: ScoringLimits,
    few_shot: bool,
    hard_clip: bool,
) -> ScoringRequest:
    """:func:`plan_scoring` with an encoder at hand."""
    compact_frame = encoder.frame(few_shot=False)
    check_frame(compact_frame, limits)
    allowed = limits.allowed_length
    prompt = encoder.encode(question, response, few_shot)
    template: Literal["full", "compact"] = "full" if few_shot else "compact"
    if few_shot and len(prompt) > allowed:
        prompt, template = prompt.with_frame(compact_frame), "compact"
    unclipped = len(prompt)
    overlength = unclipped > allowed
    if overlength and hard_clip:
        prompt, overlength = clip_parts(prompt, allowed, encoder.seam), False
    ids = prompt.ids
    return ScoringRequest(
        token_ids=ids,
        attention_mask=[1] * len(ids),
        position_ids=list(range(len(ids))),
        template=template,
        clipped=len(ids) < unclipped,
        overlength=overlength,
        unclipped_length=unclipped,
    )


def interpret(
    output_token_ids: Sequence[int],
    tokenizer: Any,
    top_logprobs: TopLogprobs | None = None,
    invalid_score: float = 0.5,
    score_mode: ScoreMode = "text",
    request: ScoringRequest | None = None,
    latency_s: float = 0.0,
) -> JudgeResult:
    """Result of one generation; only the judge's own tokens are looked at.

    Args:
        output_token_ids: what the judge generated, without the prompt.
        tokenizer: the judge's.
        top_logprobs: for each of these tokens, log-probabilities by token id.
        invalid_score: score where nothing can be read.
        score_mode: ``text`` or ``expected``.
        request: the request it answers; fills the fields on the prompt.
        latency_s: seconds of the generation.
    """
    text = tokenizer.decode(list(output_token_ids), skip_special_tokens=True)
    parsed = parse_score(text, output_token_ids, tokenizer, top_logprobs, invalid_score, score_mode)
    return JudgeResult(
        score=parsed.score,
        valid=parsed.valid,
        path=parsed.path,
        raw=text,
        latency_s=latency_s,
        new_tokens=len(output_token_ids),
        **_prompt_fields(request),
    )


def overlength_result(request: ScoringRequest, invalid_score: float) -> JudgeResult:
    """Result of a request that was not submitted because it is too long."""
    return JudgeResult(invalid_score, False, "overlength", **_prompt_fields(request))


def error_result(request: ScoringRequest, invalid_score: float, reason: str) -> JudgeResult:
    """Result of a request whose engine call failed."""
    return JudgeResult(invalid_score, False, "error", reason, **_prompt_fields(request))


def _prompt_fields(request: ScoringRequest | None) -> dict[str, Any]:
    if request is None:
        return {}
    return {
        "template": request.template,
        "clipped": request.clipped,
        "prompt_tokens": len(request.token_ids),
        "prompt_tokens_unclipped": request.unclipped_length,
    }

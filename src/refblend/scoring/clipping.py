"""Length guards: from a question and a response to a request within the cap, cut where it must be.

The order of the guards (:func:`plan_request`): full few-shot prompt → compact template when the
full prompt would not fit → hard clip, or the request is flagged ``overlength`` and never submitted.

The cap is min(model cap, tokenizer cap, fallback 768) − safety margin − max_new_tokens, where the
fallback counts only if ``scoring.max_model_len`` is null. :func:`clip_parts` cuts the middle of the
response first, then that of the question; the template's own parts stay whole. The engines count
positions along the ids that are left.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from refblend.config.scoring import ScoringConfig
from refblend.errors import ScoringError
from refblend.scoring.prompts import CharacterEncoder, EncodedPrompt, Frame, PromptEncoder
from refblend.scoring.templates import PromptForm

MIN_DATA_TOKENS = 8
"""Minimum number of response and question tokens for which a prompt must have room."""
KEPT_RESPONSE_TOKENS = 32
"""Tokens of a long response that survive however long the question is."""


def allowed_length(frame: Frame, scoring: ScoringConfig, *caps: int) -> int:
    """Longest prompt, in tokens: the least cap − safety margin − max_new_tokens.

    ``caps`` are the model's and the tokenizer's. ScoringError if the compact template, the last
    resort, whose ``frame`` is given, leaves no room.
    """
    cap = min(*caps, scoring.max_model_len or scoring.fallback_max_length)
    allowed = cap - scoring.safety_margin - scoring.max_new_tokens
    room = allowed - len(frame)
    if room < MIN_DATA_TOKENS:
        raise ScoringError(
            f"scoring: the compact template takes {len(frame)} of {allowed} tokens "
            f"(cap {cap} − margin {scoring.safety_margin} − max_new_tokens "
            f"{scoring.max_new_tokens}), which leaves {max(room, 0)} for question and response",
            "Lower max_new_tokens, raise max_model_len, or shorten compact_header and "
            "compact_instruction.",
        )
    return allowed


def cut_middle(ids: Sequence[int], length: int, seam: Sequence[int] = ()) -> tuple[int, ...]:
    """The first and last ids, ``length`` in all; of an odd length the end gets one more.

    ``seam`` stands between the two if there is room: they must not join to a quote or a box.
    """
    if len(ids) <= length:
        return tuple(ids)
    room = length - len(seam)
    if room < 2:
        return tuple(ids[len(ids) - length :])
    head = room // 2
    return (*ids[:head], *seam, *ids[len(ids) - (room - head) :])


def clip_parts(
    prompt: EncodedPrompt, allowed_length: int, seam: Sequence[int] = ()
) -> EncodedPrompt:
    """The prompt within ``allowed_length``; ``seam``, a space, replaces a cut-out middle.

    The response gives way first, down to ``KEPT_RESPONSE_TOKENS`` (or half of the room for data,
    if that is less): its opening and its final answer. Only then is the question cut.
    """
    room = allowed_length - len(prompt.frame)
    assert room >= 0, "the judge has checked its frame"
    if len(prompt.response) + len(prompt.question) <= room:
        return prompt
    floor = min(len(prompt.response), KEPT_RESPONSE_TOKENS, room // 2)
    kept_response = max(room - len(prompt.question), floor)
    kept_question = room - kept_response
    return EncodedPrompt(
        prompt.frame,
        cut_middle(prompt.response, kept_response, seam),
        cut_middle(prompt.question, kept_question, seam),
    )


@dataclass(frozen=True)
class ScoringRequest:
    """A prompt ready for the judge."""

    token_ids: list[int]
    """L tokens, no padding."""
    template: PromptForm
    clipped: bool
    """Whether response or question was cut."""
    overlength: bool
    """Too long and not clipped: must not be submitted."""
    unclipped_length: int


def plan_request(
    encoder: PromptEncoder | CharacterEncoder,
    question: str,
    response: str,
    allowed_length: int,
    form: PromptForm = "full",
    hard_clip: bool = True,
) -> ScoringRequest:
    """Choose the template, encode, and keep the prompt within ``allowed_length`` tokens."""
    prompt = encoder.encode(question, response, form)
    if form == "full" and len(prompt) > allowed_length:
        prompt, form = replace(prompt, frame=encoder.frame("compact")), "compact"
    unclipped = len(prompt)
    overlength = unclipped > allowed_length
    if overlength and hard_clip:
        prompt, overlength = clip_parts(prompt, allowed_length, encoder.seam), False
    ids = prompt.ids
    return ScoringRequest(ids, form, len(ids) < unclipped, overlength, unclipped)

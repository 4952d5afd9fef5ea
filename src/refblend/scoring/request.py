"""From one question and response to a request within the cap.

The order of the guards: full few-shot prompt → compact template when the full
prompt would not fit → hard clip, or the request is flagged ``overlength`` and never submitted.
"""

from dataclasses import dataclass, replace
from typing import Protocol

from refblend.scoring.clipping import clip_parts
from refblend.scoring.prompts import EncodedPrompt, Frame
from refblend.scoring.templates import PromptForm


class Encoder(Protocol):
    """What encodes prompts; see :class:`refblend.scoring.prompts.PromptEncoder`."""

    seam: tuple[int, ...]

    def frame(self, form: PromptForm) -> Frame:
        """Trusted ids of one form of the prompt."""
        ...

    def encode(self, question: str, response: str, form: PromptForm) -> EncodedPrompt:
        """One prompt in the chosen form."""
        ...


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
    encoder: Encoder,
    question: str,
    response: str,
    allowed_length: int,
    form: PromptForm = "full",
    hard_clip: bool = True,
) -> ScoringRequest:
    """Choose the template, encode, and keep the prompt within ``allowed_length`` tokens.

    The compact frame fits into it (:func:`refblend.scoring.clipping.check_frame`). ``full`` falls
    back to the compact form. What is still too long is cut, or flagged without ``hard_clip``.
    """
    prompt = encoder.encode(question, response, form)
    if form == "full" and len(prompt) > allowed_length:
        prompt, form = replace(prompt, frame=encoder.frame("compact")), "compact"
    unclipped = len(prompt)
    overlength = unclipped > allowed_length
    if overlength and hard_clip:
        prompt, overlength = clip_parts(prompt, allowed_length, encoder.seam), False
    ids = prompt.ids
    return ScoringRequest(ids, form, len(ids) < unclipped, overlength, unclipped)

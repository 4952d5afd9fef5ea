"""From one question and response to a request within the cap, and from its end to a result.

The order of the guards: full few-shot prompt → compact template when the full
prompt would not fit → hard clip, or the request is flagged ``overlength`` and never submitted.
"""

from dataclasses import dataclass
from typing import Protocol

from refblend.scoring.clipping import clip_parts
from refblend.scoring.prompts import EncodedPrompt, Frame
from refblend.scoring.result import JudgeResult, ParsedScore
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
    """A prompt ready for the judge.

    Attributes:
        token_ids: the prompt, L tokens, no padding.
        template: the form used.
        clipped: whether response or question was cut.
        overlength: too long and not clipped: must not be submitted.
        unclipped_length: tokens before clipping.
    """

    token_ids: list[int]
    template: PromptForm
    clipped: bool
    overlength: bool
    unclipped_length: int

    def result(
        self, parsed: ParsedScore, raw: str, latency_s: float = 0.0, new_tokens: int = 0
    ) -> JudgeResult:
        """The result of this request.

        Args:
            parsed: what was made of the judge's answer.
            raw: that answer, or the reason why there is none.
            latency_s: seconds that it took.
            new_tokens: tokens that the judge generated.
        """
        return JudgeResult(
            score=parsed.score,
            valid=parsed.valid,
            path=parsed.path,
            raw=raw,
            latency_s=latency_s,
            template=self.template,
            clipped=self.clipped,
            prompt_tokens=len(self.token_ids),
            new_tokens=new_tokens,
            prompt_tokens_unclipped=self.unclipped_length,
        )

    def too_long(self, invalid_score: float) -> JudgeResult:
        """Result of a request that was not submitted because it is too long."""
        return self.result(ParsedScore(invalid_score, False, "overlength"), "")

    def failed(self, invalid_score: float, reason: str) -> JudgeResult:
        """Result of a request whose call failed."""
        return self.result(ParsedScore(invalid_score, False, "error"), reason)


def plan_request(
    encoder: Encoder,
    question: str,
    response: str,
    allowed_length: int,
    form: PromptForm = "full",
    hard_clip: bool = True,
) -> ScoringRequest:
    """Choose the template, encode, and keep the prompt within ``allowed_length``.

    Args:
        encoder: the judge's.
        question: the problem; untrusted.
        response: the answer to judge; untrusted.
        allowed_length: longest prompt in tokens; the compact frame fits into it
            (:func:`refblend.scoring.clipping.check_frame`).
        form: ``full``: try that first, then the compact form; ``compact``: that one only.
        hard_clip: cut what is still too long; otherwise flag it ``overlength``.
    """
    prompt = encoder.encode(question, response, form)
    if form == "full" and len(prompt) > allowed_length:
        prompt, form = prompt.with_frame(encoder.frame("compact")), "compact"
    unclipped = len(prompt)
    overlength = unclipped > allowed_length
    if overlength and hard_clip:
        prompt, overlength = clip_parts(prompt, allowed_length, encoder.seam), False
    ids = prompt.ids
    return ScoringRequest(ids, form, len(ids) < unclipped, overlength, unclipped)

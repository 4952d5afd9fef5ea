"""Length guards: from a question and a response to a request within the cap, cut where it must be.

The order of the guards (:func:`plan_request`): full few-shot prompt → compact template when the
full prompt would not fit → hard clip, or the request is flagged ``overlength`` and never submitted.

The cap is min(model cap, tokenizer cap, fallback 768) − safety margin − max_new_tokens, where the
fallback counts only if ``scoring.max_model_len`` is null. Two ways of cutting:

- :func:`clip_parts` knows the parts of a prompt: the middle of the response goes first, then the
  middle of the question; prefix, between and suffix (the instruction and the opening of the
  judge's answer) stay whole. The training path uses this one.
- :func:`clip_encoded` knows only ids and a mask (docs/spec.md, section 2): it drops padding first,
  then the middle, so that both ends survive.

Position ids are recomputed after either.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, TypeVar

from refblend.errors import ScoringError
from refblend.scoring.prompts import EncodedPrompt, Frame
from refblend.scoring.templates import PromptForm

if TYPE_CHECKING:
    import torch

Ids = TypeVar("Ids", list[int], "torch.Tensor")
_NO_CAP = 10**9
MIN_DATA_TOKENS = 8
"""Minimum number of response and question tokens for which a prompt must have room."""
KEPT_RESPONSE_TOKENS = 32
"""Tokens of a long response that survive however long the question is."""


@dataclass(frozen=True)
class ScoringLimits:
    """Everything that bounds the length of a scoring prompt, in tokens; ScoringError for no room.

    ``model_cap`` is the longest sequence of the judge's engine, prompt and new tokens;
    ``tokenizer_cap`` the tokenizer's ``model_max_length``, None or a huge number for no cap.
    """

    model_cap: int
    tokenizer_cap: int | None = None
    fallback_max_length: int = 768
    safety_margin: int = 16
    max_new_tokens: int = 64

    def __post_init__(self) -> None:
        if self.allowed_length < 1:
            raise ScoringError(
                f"scoring: a cap of {self.cap} tokens leaves no room for a prompt beside "
                f"max_new_tokens={self.max_new_tokens} and safety_margin={self.safety_margin}",
                "Lower scoring.max_new_tokens or raise scoring.max_model_len.",
            )

    @property
    def cap(self) -> int:
        """min(model cap, tokenizer cap, fallback)."""
        tokenizer_cap = _NO_CAP if self.tokenizer_cap is None else self.tokenizer_cap
        return min(self.model_cap, tokenizer_cap, self.fallback_max_length)

    @property
    def allowed_length(self) -> int:
        """Longest prompt, in tokens: cap − safety margin − max_new_tokens."""
        return self.cap - self.safety_margin - self.max_new_tokens


def check_frame(frame: Frame, limits: ScoringLimits) -> None:
    """Refuse (ScoringError) templates whose compact form, the last resort, leaves no room."""
    room = limits.allowed_length - len(frame)
    if room < MIN_DATA_TOKENS:
        raise ScoringError(
            f"scoring: the compact template takes {len(frame)} of {limits.allowed_length} tokens "
            f"(cap {limits.cap} − margin {limits.safety_margin} − max_new_tokens "
            f"{limits.max_new_tokens}), which leaves {max(room, 0)} for question and response",
            "Shorten compact_header and compact_instruction, or raise the cap.",
        )


def cut_middle(ids: Sequence[int], length: int, seam: Sequence[int] = ()) -> tuple[int, ...]:
    """The first and last ids, ``length`` in all; of an odd length the end gets one more.

    ``seam`` stands between the two, if there is room for it and for one id on each side: what
    was apart must not become a quote, a separator or a box where the middle was.
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
    """The prompt within ``allowed_length``; prefix, between and suffix whole (or ScoringError).

    ``seam``, a white space, replaces a middle that was cut out.

    The response gives way first, down to ``KEPT_RESPONSE_TOKENS`` (or half of the room for data,
    if that is less): its opening and its final answer. Only then is the question cut.
    """
    frame = len(prompt.frame)
    room = allowed_length - frame
    if room < 0:
        raise ScoringError(
            f"scoring: the template takes {frame} tokens, but only {allowed_length} are allowed",
            "Shorten the template or raise the cap.",
        )
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


def clip_encoded(input_ids: Ids, attention_mask: Ids, allowed_length: int) -> tuple[Ids, Ids, Ids]:
    """Hard truncation of encoded prompts whose parts are unknown.

    Padding goes first, then the middle of the tokens. In a batch all rows get one length: shorter
    rows keep padding on the side where they had it (left when both).

    Args:
        input_ids: list of ids, or a tensor of shape (L,) or (B, L).
        attention_mask: of the same type and shape; 1 where there is a token.
        allowed_length: longest result, at least 1.

    Returns:
        input_ids, attention_mask, position_ids, all of the type given and of one shape; the
        position of a padding token is 0.

    Raises:
        ScoringError: ``allowed_length`` is below 1.
        ValueError: shapes differ.
    """
    if allowed_length < 1:
        raise ScoringError(
            f"scoring: allowed length is {allowed_length}", "Raise the cap of the judge."
        )
    import torch  # for tensors only: the checks before a run cut without it

    if isinstance(input_ids, torch.Tensor) and isinstance(attention_mask, torch.Tensor):
        return _clip_tensors(input_ids, attention_mask, allowed_length)
    given = [torch.tensor(part, dtype=torch.long) for part in (input_ids, attention_mask)]
    ids, mask, positions = _clip_tensors(given[0], given[1], allowed_length)
    return ids.tolist(), mask.tolist(), positions.tolist()


def _clip_tensors(
    ids: "torch.Tensor", mask: "torch.Tensor", allowed: int
) -> "tuple[torch.Tensor, torch.Tensor, torch.Tensor]":
    import torch

    if ids.shape != mask.shape or ids.dim() not in (1, 2):
        raise ValueError(f"input_ids {tuple(ids.shape)} and attention_mask {tuple(mask.shape)}")
    pairs = zip(torch.atleast_2d(ids).tolist(), torch.atleast_2d(mask).tolist(), strict=True)
    rows, bits = zip(*(_clip_row(row, bit, allowed) for row, bit in pairs), strict=True)
    shape = (*ids.shape[:-1], min(ids.shape[-1], allowed))
    kept = torch.tensor(rows, dtype=ids.dtype, device=ids.device).reshape(shape)
    left = torch.tensor(bits, dtype=mask.dtype, device=mask.device).reshape(shape)
    return kept, left, position_ids(left).to(ids.dtype)


def position_ids(mask: "torch.Tensor") -> "torch.Tensor":
    """0, 1, 2, … over the tokens with mask 1; 0 for padding. Of the mask's shape, (…, L)."""
    return (mask.bool().cumsum(-1) - 1).clamp(min=0) * mask.bool()


def _clip_row(ids: list[int], mask: list[int], allowed: int) -> tuple[list[int], list[int]]:
    if len(ids) <= allowed:
        return ids, mask
    kept = list(cut_middle([i for i, bit in zip(ids, mask, strict=True) if bit], allowed))
    padding = allowed - len(kept)
    pad_id = next((i for i, bit in zip(ids, mask, strict=True) if not bit), 0)
    pads, zeros, ones = [pad_id] * padding, [0] * padding, [1] * len(kept)
    right_padded = bool(mask[0]) and not mask[-1]
    return (kept + pads, ones + zeros) if right_padded else (pads + kept, zeros + ones)


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

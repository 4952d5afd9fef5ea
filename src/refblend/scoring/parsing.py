r"""Read the judge's score from its own output.

Decisions, each with a test:

- A box is ``\box{...}`` or ``\boxed{...}``, white space allowed around name and braces, braces
  may nest. The *last complete* box counts; earlier ones are drafts.
- Inside: a decimal (``0.7``, ``.7``, ``1.``, ``7e-1``), a comma decimal (``0,7``; a comma never
  groups thousands: scores are below 1), a percentage (``70%``, ``70 \%``, ``70 percent``), a
  fraction (``7/10``, ``\frac{7}{10}``). Dollar signs and LaTeX spaces are skipped. Anything else
  in the box (``about 0.7``, ``7 of 10``) is not a score.
- A number outside [0, 1], NaN, an infinity, a division by zero: invalid. It is not replaced by
  an earlier box, and never clamped.
- When the text gives nothing, the token-level parser decodes the generated tokens one by one,
  drops white space and looks after the last ``box{`` for a number. It reads a box that the
  token limit cut off, if at least one decimal was written: ``\box{0.3`` is 0.3, but ``\box{0``
  could have become anything and is invalid.
- The token-level parser, and with ``score_mode="expected"`` the text parser too, replaces the
  digits of a plain decimal by their expected value under the judge's log-probabilities, where
  these are given; validity and path stay. Where one of them is not a number, the digit counts as
  it was written.
- Thinking is not an answer: only text after the last closing tag is read, and an answer that ends
  mid-thought is invalid.

The expected value: greedy scores of a small judge take a handful of values, the probabilities of
the digit tokens carry more. For ``\box{0.37}`` each digit is replaced by its expected value, given
the digits before it. For the digit before the point, the branch not taken has no known decimals: it
counts as 1 when "0" was written (no score lies above 1) and as 0.5 when "1" was.
"""

import math
import re
import weakref
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, Literal

from refblend.scoring.result import JudgeResult

_PLAIN = re.compile(r"\{\s*([01]?[.,][0-9]+|[01][.,]?)\s*(?:\}|$)")
_OPEN = re.compile(r"box(?:ed)?\s*\{", re.IGNORECASE)
_DIGIT = re.compile(r"[0-9]")


def _float(text: str) -> float:
    return float(text.replace(",", "."))


def _shape(text: str) -> str:
    return _DIGIT.sub("\0", text)  # no letter: a token "d" is no digit


def _candidates(
    written: str, logprobs: Mapping[int, float], piece: Callable[[int], str]
) -> list[tuple[str, float]]:
    """(text, probability) of the likely tokens with the written token's shape, normalised."""
    shape = _shape(written)
    found = [(t, lp) for i, lp in logprobs.items() if _shape(t := piece(i)) == shape]
    if not found or any(math.isnan(lp) for _, lp in found):
        return []
    top = max(lp for _, lp in found)
    if math.isinf(top):
        return []
    weights = [(text, math.exp(lp - top)) for text, lp in found]
    total = math.fsum(weight for _, weight in weights)
    return [(text, weight / total) for text, weight in weights]


def expected_score(
    pieces: Sequence[str],
    top_logprobs: Sequence[Mapping[int, float] | None],
    piece: Callable[[int], str],
    value: float,
) -> float | None:
    """Probability-weighted score in [0, 1] of the last box that says ``value``, or None.

    ``pieces`` are the texts of the generated tokens, ``piece`` gives that of a token id, and
    ``top_logprobs`` has log-probabilities by token id for each (entries may be None).
    """
    text = "".join(pieces)
    found = (_PLAIN.match(text, box.end() - 1) for box in _OPEN.finditer(text))
    meant = [m for m in found if m and _float(m[1]) == value]
    if not meant:
        return None
    start, end = meant[-1].span(1)
    point = next((i for i in range(start, end) if text[i] in ".,"), end)
    lead, decimals, used = 0.0, 0.0, False
    position = 0
    for index, written in enumerate(pieces):
        first, position = position, position + len(written)
        overlap = [i for i in range(max(first, start), min(position, end)) if text[i].isdigit()]
        if not overlap:
            continue
        logprobs = top_logprobs[index] if index < len(top_logprobs) else None
        options = _candidates(written, logprobs, piece) if logprobs else []
        used = used or bool(options)
        for i in overlap:
            probable = options or [(written, 1.0)]
            digits = [(int(option[i - first]), weight) for option, weight in probable]
            if i < point:
                zero = math.fsum(w for d, w in digits if d == 0)
                one = math.fsum(w for d, w in digits if d == 1)
                lead = one / (zero + one) if zero + one > 0 else float(text[i])
            else:
                decimals += math.fsum(d * w for d, w in digits) * 10.0 ** (point - i)
    if not used:
        return None
    if text[start] == "1":
        decimals = 0.5
    return min(1.0, max(0.0, lead + (1.0 - lead) * decimals))


ScoreMode = Literal["text", "expected"]
TopLogprobs = Sequence[Mapping[int, float] | None]

MAX_BOX_CHARS = 200
"""Longer contents are not a score; it bounds the work on a babbling judge."""

_OPEN_BOX = re.compile(r"\\\s*box(?:ed)?\s*\{", re.IGNORECASE)
_SPACES = re.compile(r"\s+|\\[,;:! ]|\\quad|~|\$")
_NUMBER = r"[+-]?(?:[0-9]+(?:[.,][0-9]*)?|[.,][0-9]+)(?:[eE][+-]?[0-9]{1,3})?"
_DECIMAL = re.compile(_NUMBER)
_PERCENT = re.compile(rf"({_NUMBER})(?:\\?%|percent)", re.IGNORECASE)
_SLASH = re.compile(rf"({_NUMBER})/({_NUMBER})")
_FRAC = re.compile(rf"\\[dt]?frac\{{({_NUMBER})\}}\{{({_NUMBER})\}}")
_TOKEN_BOX = re.compile(r"box(?:ed)?[{(]", re.IGNORECASE)
_CUT_DECIMAL = re.compile(r"[01]?[.,][0-9]+")
_THOUGHT = re.compile(
    r"<(/?)(?:\w+:)?(?:think|thinking|thought|reasoning)>|\[(/?)THINK\]", re.IGNORECASE
)
"""Tags around thoughts: Qwen, DeepSeek, Seed, Magistral and others."""


def parse_number(content: str) -> float | None:
    """The value of a box's content, of any size; None if it is not one of the accepted forms."""
    if len(content) > MAX_BOX_CHARS:
        return None
    content = _SPACES.sub("", content)
    if _DECIMAL.fullmatch(content):
        return _float(content)
    if match := _PERCENT.fullmatch(content):
        return _float(match[1]) / 100.0
    if match := (_SLASH.fullmatch(content) or _FRAC.fullmatch(content)):
        numerator, denominator = _float(match[1]), _float(match[2])
        return numerator / denominator if denominator else float("nan")
    return None


def last_box(text: str) -> str | None:
    """The content of the last complete box, or None."""
    for match in reversed(list(_OPEN_BOX.finditer(text))):
        depth = 1
        for position in range(match.end(), min(len(text), match.end() + MAX_BOX_CHARS + 1)):
            depth += (text[position] == "{") - (text[position] == "}")
            if depth == 0:
                return text[match.end() : position]
    return None


def answer_start(text: str) -> int | None:
    """Where the answer begins after the judge's thinking; None if the thinking never ends."""
    tags = list(_THOUGHT.finditer(text))
    if not tags:
        return 0
    closing = tags[-1][1] or tags[-1][2]
    return tags[-1].end() if closing else None


def piece_at(pieces: Sequence[str], position: int) -> tuple[int, int]:
    """Which piece holds the character at ``position`` of them all, and its place there."""
    ends = [0, *accumulate(map(len, pieces))]
    index = bisect_right(ends, position) - 1
    return index, position - ends[index]


def _after_thought(
    pieces: Sequence[str], top_logprobs: TopLogprobs | None
) -> tuple[list[str], TopLogprobs | None]:
    """The answer's own pieces; none where the tokens do not show where the thought ends."""
    start = answer_start("".join(pieces))
    if not start:
        return [], None
    index, place = piece_at(pieces, start)
    if index == len(pieces):
        return [], None
    kept = [pieces[index][place:], *pieces[index + 1 :]]
    return kept, top_logprobs and top_logprobs[index:]


def parse_score(
    text: str,
    token_ids: Sequence[int] | None = None,
    tokenizer: Any = None,
    top_logprobs: TopLogprobs | None = None,
    invalid_score: float = 0.5,
    score_mode: ScoreMode = "text",
) -> JudgeResult:
    """Score of a judge's decoded output, without the prompt; never raises, whatever it wrote.

    The token-level parser needs ``token_ids`` and what decodes them. ``top_logprobs`` has
    log-probabilities of the likeliest token ids for each generated token.
    """
    value: float | None = None
    path: Literal["text", "token"] = "text"
    answer = answer_start(text)
    if answer is None:
        return JudgeResult(invalid_score, False, "default")
    box = last_box(text[answer:])
    if box is not None:
        value = parse_number(box)
    text_of = partial(piece, tokenizer)
    pieces = [] if tokenizer is None else [text_of(int(i)) for i in token_ids or ()]
    if pieces and answer:
        pieces, top_logprobs = _after_thought(pieces, top_logprobs)
    if value is None:
        value, path = _parse_pieces(pieces), "token"
    if value is None or not 0.0 <= value <= 1.0:  # NaN is not
        return JudgeResult(invalid_score, False, "default")
    if pieces and top_logprobs and (score_mode == "expected" or path == "token"):
        expected = expected_score(pieces, top_logprobs, text_of, value)
        value = value if expected is None else expected
    return JudgeResult(abs(value), True, path)


_PIECES: weakref.WeakKeyDictionary[Any, dict[int, str]] = weakref.WeakKeyDictionary()


def piece(tokenizer: Any, token_id: int) -> str:
    """The text of one token, decoded alone and cached."""
    known = _PIECES.setdefault(tokenizer, {})
    if token_id not in known:
        known[token_id] = tokenizer.decode([token_id], skip_special_tokens=True)
    return known[token_id]


def _parse_pieces(pieces: Sequence[str]) -> float | None:
    """The number after the last ``box{`` of the tokens, white space dropped."""
    text = "".join(re.sub(r"\s+", "", p) for p in pieces)
    opens = list(_TOKEN_BOX.finditer(text))
    if not opens:
        return None
    rest = text[opens[-1].end() : opens[-1].end() + MAX_BOX_CHARS]
    closed = re.match(r"([^{}()]*)[})]", rest)
    if closed:
        return parse_number(closed[1])
    return _float(rest) if _CUT_DECIMAL.fullmatch(rest) else None

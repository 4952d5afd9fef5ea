r"""Expected value of the score under the judge's own log-probabilities.

Greedy scores of a small judge take a handful of values. The probabilities of the digit tokens
carry more: for ``\box{0.37}`` each digit is replaced by its expected value, given the digits
before it. For the digit before the point, the branch not taken has no known decimals: it counts
as 1 when "0" was written (no score lies above 1) and as 0.5 when "1" was.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence

_PLAIN = re.compile(r"\{\s*([01]?[.,][0-9]+|[01][.,]?)\s*(?:\}|$)")
_OPEN = re.compile(r"box(?:ed)?\s*\{", re.IGNORECASE)
_DIGIT = re.compile(r"[0-9]")


def _shape(text: str) -> str:
    return _DIGIT.sub("d", text)


def _candidates(
    written: str, logprobs: Mapping[int, float], piece: Callable[[int], str]
) -> list[tuple[str, float]]:
    """(text, probability) of the likely tokens with the written token's shape, normalised."""
    shape = _shape(written)
    found = [(t, lp) for i, lp in logprobs.items() if _shape(t := piece(i)) == shape]
    found = [(text, lp) for text, lp in found if not math.isnan(lp)]
    if not found:
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
    """Probability-weighted score of the last box, or None if it is not a plain decimal.

    ``pieces`` are the texts of the generated tokens, ``piece`` gives that of a token id, and
    ``top_logprobs`` has log-probabilities by token id for each (entries may be None). The last box
    with the ``value`` as written is the one meant.

    Returns:
        A value in [0, 1], or None (percentages, fractions, no box, no log-probabilities).
    """
    text = "".join(pieces)
    found = (_PLAIN.match(text, box.end() - 1) for box in _OPEN.finditer(text))
    meant = [m for m in found if m and float(m[1].replace(",", ".")) == value]
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
    if text[start : start + 1] == "1":
        return min(1.0, max(0.0, lead + (1.0 - lead) * 0.5))
    return min(1.0, max(0.0, lead + (1.0 - lead) * decimals))

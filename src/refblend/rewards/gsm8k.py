"""Rule-based scoring of a response against a numeric gold answer, as for GSM8K.

``strict`` reads the last ``#### number``, where 3/4 is 0.75; ``flexible`` reads the last number of
the text, where 3/4 ends in 4. Unlike verl,
this scans the whole text (not only its last 300 characters), accepts ``#### 42.``, and compares
values, so 42, 42.0, $42 and 42. are the same answer. A minus counts as a sign unless a digit,
letter or bracket stands before it: ``50-8`` ends in 8. Every comma between digits is dropped.
"""

import re
from collections import deque
from decimal import Decimal
from fractions import Fraction
from typing import Literal

from refblend.errors import DataError

Method = Literal["strict", "flexible"]

_DIGITS = r"(?:[0-9][0-9,]*(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3}(?![0-9A-Za-z]))?"
_NUMBER = re.compile(
    r"(?P<sign>(?<![0-9A-Za-z.)\]])[-−+])?(?:\\?\$\s?(?P<inner>[-−])?)?"
    rf"(?P<digits>{_DIGITS})"
)
_DENOMINATOR = re.compile(rf" ?/ ?(?P<digits>{_DIGITS})")
_MARKER = "####"


def _value(match: re.Match[str]) -> Decimal:
    # "-$5" has the sign before the currency, "$-5" after it
    negative = match["sign"] in ("-", "−") or match["inner"] is not None
    value = Decimal(match["digits"].replace(",", ""))
    return value.copy_negate() if negative else value  # unary minus would round to 28 digits


def _after_marker(text: str, found: re.Match[str]) -> Decimal | Fraction | None:
    """The number after a marker, or the fraction that it begins; None if that divides by zero."""
    below = _DENOMINATOR.match(text, found.end())
    if below is None:
        return _value(found)
    divisor = Fraction(Decimal(below["digits"].replace(",", "")))
    return Fraction(_value(found)) / divisor if divisor else None


def extract_number(text: str, method: Method = "strict") -> Decimal | Fraction | None:
    """The answer's value, None without one; ValueError for an unknown ``method``."""
    if method == "flexible":
        last = deque(_NUMBER.finditer(text), maxlen=1)
        return _value(last[0]) if last else None
    if method != "strict":
        raise ValueError(f"method={method!r} is unknown: use strict or flexible")
    # searched from the end, so that a marker without a number does not hide an earlier one
    end = len(text)
    while (start := text.rfind(_MARKER, 0, end)) >= 0:
        rest = text[start + len(_MARKER) :].lstrip()
        if found := _NUMBER.match(rest):
            return _after_marker(rest, found)
        end = start
    return None


def compute_score(solution_str: str, ground_truth: str, method: Method = "strict") -> float:
    """1 if the response's answer is right, else 0.

    ``ground_truth`` is a number as text (else DataError); commas, ``$`` and a final dot are
    ignored. ``method`` says which number of the response is its answer.
    """
    gold = _NUMBER.fullmatch(str(ground_truth).strip().rstrip(".").rstrip(","))
    if gold is None:
        raise DataError(
            f"the ground truth {str(ground_truth)[:80]!r} is not a number",
            "Correct the data, or name a function for such answers in "
            "reward.custom_reward_function.",
        )
    return float(extract_number(solution_str, method) == _value(gold))

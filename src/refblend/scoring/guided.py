r"""The expression that a judge's answer matches under ``scoring.decoding: guided``.

A line of working, then one ``\box{x}`` with x = 0.dd, 1.00 or 1. The line is short enough for the
box to fit: it is printable ASCII, of which a token covers at least one character, so an answer of
``max_new_tokens`` tokens is never cut before its box ends, whatever the judge would rather write.
"""

from refblend.config.scoring import GUIDED_MIN_TOKENS, ScoringConfig

_WORKING = r"[ -\[\]-z|~]"
"""Printable ASCII without backslash and braces, so that the working contains no box."""
_BOX = r"\\box\{(0\.[0-9][0-9]|1\.00|1)\}"


def guided_regex(max_new_tokens: int) -> str:
    """The expression for answers of at most that many tokens, ``GUIDED_MIN_TOKENS`` or more."""
    return _WORKING + f"{{0,{max_new_tokens - GUIDED_MIN_TOKENS}}}" + _BOX


def answer_regex(scoring: ScoringConfig) -> str | None:
    """What the answers of a configured judge must match; None: anything."""
    return guided_regex(scoring.max_new_tokens) if scoring.decoding == "guided" else None

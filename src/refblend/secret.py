"""Keep secrets out of every text that is shown or stored.

A secret is the value of an environment variable that the configuration names
(``scoring.http.bearer_env``) or whose own name says so, and the password in an address.
:func:`mask` replaces them. It is applied where text crosses an edge: our errors, texts that are
shortened for a message, a judge's words, rollouts, log lines and tracebacks.
"""

import functools
import json
import logging
import os
import re
import sys
import traceback
from typing import Any
from urllib.parse import quote

HIDDEN = "***"
MIN_LENGTH = 4
"""Shorter values keep nothing secret, and would be found in every text."""
_SECRET_NAME = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$", re.IGNORECASE)
_MIN_UNNAMED = 8  # of a variable that only sounds like a secret's
_IN_ADDRESS = re.compile(r"(?<=://)[^\s/@]+(?=@)")
_named: set[str] = set()


def read_secret(name: str) -> str:
    """The value of an environment variable, masked from now on; blanks around it are dropped.

    Empty if there is none. ValueError if it could not stand in a header, without the value.
    """
    value = os.environ.get(name, "").strip()
    if value:
        _named.add(name)
    if not re.fullmatch(r"[!-~]*", value):
        raise ValueError("holds a blank, a line break or a letter that is not ASCII")
    return value


def mask(text: str) -> str:
    """The text without secrets, as they are or escaped for JSON, Python or an address."""
    for value in _values():
        text = text.replace(value, HIDDEN)
    return _IN_ADDRESS.sub(HIDDEN, text) if "://" in text else text


def _values() -> tuple[str, ...]:
    """Every secret of this moment's environment in all its spellings, the longest first."""
    return _spellings(
        frozenset(
            value
            for name, raw in os.environ.items()
            if len(value := raw.strip()) >= (MIN_LENGTH if name in _named else _MIN_UNNAMED)
            and (name in _named or _SECRET_NAME.search(name))
        )
    )


@functools.lru_cache(maxsize=8)
def _spellings(secrets: frozenset[str]) -> tuple[str, ...]:
    found = set(secrets)
    for secret in secrets:
        found |= {json.dumps(secret)[1:-1], repr(secret)[1:-1], quote(secret, safe="")}
    return tuple(sorted(found, key=len, reverse=True))


def mask_output(log_format: str) -> None:
    """Mask this process's log lines, written in ``log_format``, and the tracebacks that end it."""

    class MaskedFormatter(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return mask(super().format(record))

    def show_masked(*error: Any) -> None:
        sys.stderr.write(mask("".join(traceback.format_exception(*error))))

    logging.basicConfig(level=logging.WARNING)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(MaskedFormatter(log_format))
    sys.excepthook = show_masked

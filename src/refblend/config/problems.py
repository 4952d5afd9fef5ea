"""All problems that pydantic finds in a document, as one of our errors."""

import difflib
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from refblend.documents import shorten, show
from refblend.errors import ConfigError

MAX_LISTED = 20
"""Problems that one error lists."""

Location = Sequence[int | str]


def explain(
    error: ValidationError,
    model: type[BaseModel],
    document: str = "",
    origin: Callable[[Location], str] = lambda location: "",
) -> ConfigError:
    """Every problem with its remedy, in one line; unknown keys come first.

    ``document`` is named before each key (``experiment a.yaml: ``), and ``origin`` (`` in <file>``,
    or empty) after it.
    """
    problems = sorted(error.errors(), key=lambda problem: problem["type"] != "extra_forbidden")
    found = [_explain(p, model, origin(p["loc"])) for p in problems[:MAX_LISTED]]
    if len(problems) == 1:
        return ConfigError(f"{document}{found[0].reason}", found[0].remedy)
    listed = " ".join(f"({number}) {one}" for number, one in enumerate(found, start=1))
    more = f" … and {len(problems) - len(found)} more" if len(problems) > len(found) else ""
    return ConfigError(
        f"{document}{len(problems)} problems: {listed}{more}", "Correct all of them."
    )


def _explain(problem: ErrorDetails, model: type[BaseModel], origin: str) -> ConfigError:
    location = [shorten(str(part), 60) for part in problem["loc"]]
    key = shorten(".".join(location), 200) or "configuration"
    if problem["type"] == "extra_forbidden":
        return ConfigError(f"unknown key {key}{origin}", _nearest(location, model))
    if problem["type"] == "missing":
        return ConfigError(f"{key} is missing{origin}", f"Set {key} in a file or as an override.")
    message = shorten(problem["msg"].removeprefix("Value error, "), 600)
    leaf = not isinstance(problem["input"], dict | BaseModel) and ": " not in message
    if problem["type"] == "value_error" and not leaf:
        reason, colon, remedy = message.rpartition(": ")
        if not colon:
            reason, remedy = remedy, "change that value"
        return ConfigError(f"{key}: {reason}{origin}", remedy[:1].upper() + remedy[1:] + ".")
    return ConfigError(
        f"{key}={show(problem['input'])} is not acceptable{origin}",
        f"{message[:1].upper() + message[1:].rstrip('.')}.",
    )


def _nearest(location: Sequence[str], model: Any) -> str:
    """Name the existing key that looks most like the unknown one."""
    for part in location[:-1]:
        field = model.model_fields.get(part)
        model = field.annotation if field else None
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            return "Remove it."
    names = list(model.model_fields)
    close = difflib.get_close_matches(location[-1], names, n=1)
    if close:
        return f"Did you mean {'.'.join([*location[:-1], close[0]])}?"
    return f"Remove it, or use one of: {', '.join(names)}."

"""Loading of YAML files and dotted overrides into the configuration tree.

Later files and overrides win. Nothing is guessed: a key that the tree does not have is an error
that names it, with the nearest key that exists.
"""

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from refblend.config.root import RefblendConfig
from refblend.documents import MalformedError, parse_yaml, shorten, show
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


def read_yaml(path: str | Path) -> dict[str, Any]:
    """Read one YAML mapping; ConfigError if the file is missing or holds something else."""
    path = Path(path)
    try:
        content = parse_yaml(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file", "Give the path of a YAML file.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read ({error})", "Give a UTF-8 YAML file.") from None
    except MalformedError as error:
        line = f", line {error.line}" if error.line else ""
        raise ConfigError(
            f"{path}{line}: not valid YAML ({error.problem})", "Correct the file."
        ) from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: is not a mapping", "Write `key: value` lines.")
    return content


def parse_override(text: str) -> tuple[list[str], Any]:
    """Split ``a.b.c=value`` into its path and its YAML value.

    >>> parse_override("algorithm.ref_quality_score.max_weight=0.2")
    (['algorithm', 'ref_quality_score', 'max_weight'], 0.2)
    """
    key, separator, value = text.partition("=")
    parts = key.strip().split(".")
    if not separator or not all(parts):
        raise ConfigError(
            f"override {show(text)} is not of the form key=value",
            "Write e.g. algorithm.ref_quality_score.max_weight=0.2.",
        )
    try:
        return parts, _number(parse_yaml(value))
    except MalformedError as error:
        raise ConfigError(
            f"override {shorten(key)}: the value {show(value)} is not valid YAML ({error.problem})",
            "Quote or correct it.",
        ) from None


def _number(value: Any) -> Any:
    """YAML 1.1 reads ``1e-4`` as text; users mean a number."""
    if isinstance(value, str):
        try:
            return float(value) if "e" in value.lower() else value
        except ValueError:
            return value
    return value


def merge(base: Mapping[str, Any], overlay: Mapping[str, Any]) -> dict[str, Any]:
    """Deep merge of mappings; lists and scalars of ``overlay`` replace those of ``base``."""
    merged = dict(base)
    for key, value in overlay.items():
        old = merged.get(key)
        merged[key] = (
            merge(old, value)
            if isinstance(old, Mapping) and isinstance(value, Mapping)
            else _number(value)
        )
    return merged


def nest(path: Sequence[str], value: Any) -> dict[str, Any]:
    """``(["a", "b"], 1)`` → ``{"a": {"b": 1}}``."""
    for key in reversed(path):
        value = {key: value}
    return value


def load_config(
    paths: Iterable[str | Path] = (),
    overrides: Iterable[str] = (),
) -> RefblendConfig:
    """Load and check the configuration; what is not acceptable is a ConfigError.

    Later ``paths`` of YAML files win, and ``overrides`` (``a.b.c=value``) win over them.
    """
    files = [(str(path), read_yaml(path)) for path in paths]
    tree: dict[str, Any] = {}
    for _, content in files:
        tree = merge(tree, content)
    return parse_config(tree, overrides, files)


def parse_config(
    tree: Mapping[str, Any],
    overrides: Iterable[str] = (),
    files: Sequence[tuple[str, Any]] = (),
) -> RefblendConfig:
    """Check a configuration tree after its ``overrides`` (``a.b.c=value``), or ConfigError.

    ``files`` are names and contents of what the tree was read from, for messages.
    """
    for text in overrides:
        tree = merge(tree, nest(*parse_override(text)))
    try:
        return RefblendConfig.model_validate(tree)
    except ValidationError as error:
        raise explain(
            error, RefblendConfig, origin=lambda location: _origin(location, files, tree)
        ) from None


def _origin(
    location: Sequence[int | str], files: Sequence[tuple[str, Any]], tree: Mapping[str, Any]
) -> str:
    """`` in <file>`` for a key whose value in ``tree`` is the one of a file, not an override's."""
    value = _value_at(tree, location)
    for name, content in reversed(files):
        held = _value_at(content, location)
        if held is not _ABSENT and (held is value or held == value):
            return f" in {name}"
    return ""


_ABSENT = object()


def _value_at(tree: Any, location: Sequence[int | str]) -> Any:
    """The value at a location, as far down as it exists; ``_ABSENT`` without its first key."""
    for depth, part in enumerate(location):
        try:
            tree = tree[part]
        except (LookupError, TypeError):
            return tree if depth else _ABSENT
    return tree

"""Loading of YAML files and dotted overrides into the configuration tree.

Later files and overrides win. Nothing is guessed: a key that the tree does not have is an error
that names it, with the nearest key that exists.
"""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from refblend.config.root import RefblendConfig
from refblend.errors import ConfigError

_NOT_YAML = (yaml.YAMLError, ValueError, RecursionError)
"""PyYAML lets impossible dates and numbers, and nesting without end, through as Python's errors."""


def read_yaml(path: str | Path) -> dict[str, Any]:
    """Read one YAML mapping.

    Raises:
        ConfigError: the file is missing, is not YAML, or does not hold a mapping.
    """
    path = Path(path)
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file", "Give the path of a YAML file.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read ({error})", "Give a UTF-8 YAML file.") from None
    except _NOT_YAML as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "malformed"
        raise ConfigError(
            f"{path}{line}: not valid YAML ({problem})", "Correct the file."
        ) from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: holds no mapping", "Write `key: value` lines.")
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
            f"override {text!r} is not of the form key=value",
            "Write e.g. algorithm.ref_quality_score.max_weight=0.2",
        )
    try:
        return parts, _number(yaml.safe_load(value))
    except _NOT_YAML:
        shown = value if len(value) <= 60 else f"{value[:57]}..."
        raise ConfigError(
            f"override {key}: the value {shown!r} is not valid YAML", "Quote or correct it."
        ) from None


def _number(value: Any) -> Any:
    """YAML 1.1 reads ``1e-4`` as text; people mean a number."""
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
    """Load and check the configuration.

    Args:
        paths: YAML files, later ones win.
        overrides: ``a.b.c=value`` strings, applied last.

    Raises:
        ConfigError: a file cannot be read, a key is unknown, or a value is not acceptable.
    """
    tree: dict[str, Any] = {}
    for path in paths:
        tree = merge(tree, read_yaml(path))
    for text in overrides:
        tree = merge(tree, nest(*parse_override(text)))
    try:
        return RefblendConfig.model_validate(tree)
    except ValidationError as error:
        raise _explain(error) from None


def _explain(error: ValidationError) -> ConfigError:
    """Turn the first problem that pydantic found into one line with a remedy."""
    problems = error.errors()
    problem = next((p for p in problems if p["type"] == "extra_forbidden"), problems[0])
    location = [str(part) for part in problem["loc"]]
    key = ".".join(location) or "configuration"
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    if problem["type"] == "extra_forbidden":
        return ConfigError(f"unknown key {key}{more}", _nearest(location))
    if problem["type"] == "missing":
        return ConfigError(f"{key} is missing{more}", f"Set {key} in a file or as an override.")
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "value_error":
        reason, _, remedy = message.rpartition(": ")
        return ConfigError(f"{key}: {reason}{more}", remedy[:1].upper() + remedy[1:] + ".")
    return ConfigError(
        f"{key}={problem['input']!r} is not acceptable{more}", f"{message.rstrip('.')}."
    )


def _nearest(location: Sequence[str]) -> str:
    """Name the existing key that looks most like the unknown one."""
    model: Any = RefblendConfig
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

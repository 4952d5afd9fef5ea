"""Loading of YAML files and dotted overrides into the configuration tree.

Later files and overrides win. Nothing is guessed: an unknown key is an error that
names it and the nearest key that exists.
"""

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from refblend.config.root import RefblendConfig
from refblend.documents import MalformedError, parse_yaml, shorten, show
from refblend.errors import ConfigError

MAX_LISTED = 20
"""Problems that one error lists."""

Location = Sequence[int | str]
Model = TypeVar("Model", bound=BaseModel)


def checked(
    model: type[Model],
    values: Any,
    document: str = "",
    origin: Callable[[Location], str] = lambda location: "",
) -> Model:
    """The values as a model, or a ConfigError with every problem and its remedy in one line."""
    try:
        return model.model_validate(values)
    except ValidationError as error:  # unknown keys first
        problems = sorted(error.errors(), key=lambda problem: problem["type"] != "extra_forbidden")
    found = [_explain(p, model, origin(p["loc"])) for p in problems[:MAX_LISTED]]
    if len(problems) == 1:
        raise ConfigError(f"{document}{found[0].reason}", found[0].remedy)
    listed = " ".join(f"({number}) {one}" for number, one in enumerate(found, start=1))
    more = f" … and {len(problems) - len(found)} more" if len(problems) > len(found) else ""
    raise ConfigError(f"{document}{len(problems)} problems: {listed}{more}", "Correct all of them.")


def _explain(problem: ErrorDetails, model: type[BaseModel], origin: str) -> ConfigError:
    parts = [str(part) for part in problem["loc"]]
    location = [shorten(part, 60) for part in parts]
    key = shorten(".".join(location), 200) or "configuration"
    kind, value = problem["type"], problem["input"]
    if kind == "extra_forbidden":
        return ConfigError(f"unknown key {key}{origin}", _nested(parts, value, model))
    if kind == "missing" and isinstance(problem["loc"][-1], int):
        whole = ".".join(location[:-1])
        return ConfigError(f"{whole} has too few values{origin}", f"Give all of them: {whole}=[…].")
    if kind == "missing":
        return ConfigError(f"{key} is missing{origin}", f"Set {key} in a file or as an override.")
    message = shorten(problem["msg"].removeprefix("Value error, "), 600)
    leaf = not isinstance(value, dict | BaseModel) and ": " not in message
    if kind == "value_error" and not leaf:
        reason, colon, remedy = message.rpartition(": ")
        if not colon:
            reason, remedy = remedy, "change that value"
        return ConfigError(f"{key}: {reason}{origin}", remedy[:1].upper() + remedy[1:] + ".")
    remedy = _remedy(problem, model, origin) or f"{message[:1].upper() + message[1:].rstrip('.')}."
    if value is None and kind.endswith("_type"):
        return ConfigError(f"{key} is null{origin}", remedy)
    return ConfigError(f"{key}={show(value)} is not acceptable{origin}", remedy)


def _remedy(problem: ErrorDetails, model: type[BaseModel], origin: str) -> str:
    """What to do about a value of the wrong type; empty where pydantic's own words say it."""
    kind, value, parts = problem["type"], problem["input"], list(map(str, problem["loc"]))
    section, field = field_at(parts, model)
    if kind == "model_type" and section is not None:
        examples = {n: f.default for n, f in section.model_fields.items() if _plain(f.default)}
        name, example = next(iter(examples.items()), ("KEY", "VALUE"))
        return f"It is a section; set one of its keys, e.g. {'.'.join(parts)}.{name}={example}."
    if kind in ("list_type", "tuple_type"):
        item = value if isinstance(value, str) and value else "…"
        return f"Write a list: {'.'.join(parts)}=[{shorten(item, 200)}]."
    if value is not None or not kind.endswith("_type") or field is None:
        return ""
    if field.is_required():
        files = ", or add a file that sets it, e.g. --config params/scale/smoke.yaml"
        return f"Give it a value{files if origin and model is RefblendConfig else ''}."
    default = f"; its default is {field.default}" if _plain(field.default) else ""
    return f"Give it a value, or leave it out{default}."


def _plain(value: Any) -> bool:
    """Whether a default can be shown as it is written."""
    return isinstance(value, int | float | str) and not isinstance(value, bool)


def field_at(
    location: Sequence[str], model: Any
) -> tuple[type[BaseModel] | None, FieldInfo | None]:
    """The section at a location, and the field that holds it; None for what is not there."""
    field = None
    for part in location:
        field = model.model_fields.get(part) if model is not None else None
        below = field.annotation if field else None
        model = below if isinstance(below, type) and issubclass(below, BaseModel) else None
    return model, field


def _nested(location: Sequence[str], value: Any, model: type[BaseModel]) -> str:
    """What to do about an unknown key, which may be one that is written with dots in a file."""
    parts = ".".join(location).split(".")
    if parts == list(location) or field_at(parts, model)[1] is None:
        return _nearest([shorten(part, 60) for part in parts], model)
    shown = shorten("null" if value is None else str(value), 60)
    nested = shown
    for part in reversed(parts[1:]):
        nested = f"{{{part}: {nested}}}"
    either = f", or give {'.'.join(parts)}={shown} on the command line"
    remedy = f"In a file write it nested ({parts[0]}: {nested})"
    return f"{remedy}{either if model is RefblendConfig else ''}."


def _nearest(location: Sequence[str], model: Any) -> str:
    """Name the existing key that looks most like the unknown one."""
    for depth, part in enumerate(location):
        section, _ = field_at(location[:depth], model)
        if section is None:
            return "Remove it."
        names = list(section.model_fields)
        if part not in names:
            break
    if close := difflib.get_close_matches(part, names, n=1):
        return f"Did you mean {'.'.join([*location[:depth], close[0]])}?"
    return f"Remove it, or use one of: {', '.join(names)}."


def read_yaml(path: str | Path) -> dict[str, Any]:
    """Read one YAML mapping; ConfigError if the file is missing or holds something else."""
    path = Path(path)
    try:
        content = parse_yaml(path.read_text(encoding="utf-8-sig"))
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
    if text[:1] in ("+", "~"):  # Hydra's
        plain = text.lstrip("+~")
        raise ConfigError(
            f"override {show(text)}: keys need no {text[0]} here, and none can be removed",
            f"Write {shorten(plain if '=' in plain else f'{plain}=VALUE')}.",
        )
    if text.endswith((".yaml", ".yml")) and "=" not in text:
        raise ConfigError(
            f"{shorten(text)} stands where key=value is expected",
            f"Write --config before every file: --config {shorten(text)}.",
        )
    key, separator, value = text.partition("=")
    parts = key.strip().split(".")
    if not separator or not all(parts):
        raise ConfigError(
            f"override {show(text)} is not of the form key=value",
            "Write e.g. algorithm.ref_quality_score.max_weight=0.2.",
        )
    try:
        return parts, parse_yaml(value)
    except MalformedError as error:
        raise ConfigError(
            f"override {shorten(key)}: the value {show(value)} is not valid YAML ({error.problem})",
            "Quote or correct it.",
        ) from None


def merge(base: Mapping[str, Any], overlay: Mapping[str, Any]) -> dict[str, Any]:
    """Deep merge of mappings; lists and scalars of ``overlay`` replace those of ``base``."""
    merged = dict(base)
    for key, value in overlay.items():
        old = merged.get(key)
        merged[key] = (
            merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
        )
    return merged


def nest(path: Sequence[str], value: Any) -> dict[str, Any]:
    """``(["a", "b"], 1)`` → ``{"a": {"b": 1}}``."""
    for key in reversed(path):
        value = {key: value}
    return value


def overridden(tree: Mapping[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """The tree with each ``a.b.c=value``, later ones winning."""
    for text in overrides:
        tree = merge(tree, nest(*parse_override(text)))
    return dict(tree)


def load_config(paths: Iterable[str | Path] = (), overrides: Sequence[str] = ()) -> RefblendConfig:
    """The configuration of YAML files and ``a.b.c=value``, later ones winning; or ConfigError."""
    files = [(str(path), read_yaml(path)) for path in paths]
    tree: dict[str, Any] = {}
    for _, content in files:
        tree = merge(tree, content)
    return parse_config(tree, overrides, files)


def parse_config(
    tree: Mapping[str, Any], overrides: Sequence[str] = (), files: Sequence[tuple[str, Any]] = ()
) -> RefblendConfig:
    """The configuration of a tree and overrides; ``files`` are the tree's sources, for messages."""
    sources = [*files, ("", overridden({}, overrides))]
    tree = overridden(tree, overrides)

    def origin(location: Location) -> str:
        """`` in <file>`` for a key whose value is the one of a file."""
        value = _value_at(tree, location)
        for name, content in reversed(sources):
            held = _value_at(content, location)
            if held is not _ABSENT and (held is value or held == value):
                return f" in {name}" if name else ""
        return ""

    return checked(RefblendConfig, tree, origin=origin)


_ABSENT = object()


def _value_at(tree: Any, location: Sequence[int | str]) -> Any:
    """The value at a location, as far down as it exists; ``_ABSENT`` without its first key."""
    for depth, part in enumerate(location):
        try:
            tree = tree[part]
        except (LookupError, TypeError):
            return tree if depth else _ABSENT
    return tree

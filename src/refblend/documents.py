"""Strict reading of JSON and YAML from sources that may be hostile or careless.

Anything wrong with a document becomes one exception, :class:`MalformedError`, a ``ValueError`` that
callers turn into one of our errors with the file's name. Beyond the syntax it covers: unlimited
nesting, aliases that expand without limit, duplicate keys (one of the two would be lost silently),
halves of surrogate pairs (not text: they cannot be written again), and PyYAML's own slips.
"""

import copy
import functools
import json
import re
from collections import Counter
from collections.abc import Hashable, Mapping
from typing import Any, ClassVar

import yaml

from refblend.secret import mask

MAX_DEPTH = 100
MAX_NODES = 200_000
"""Values of a YAML document after its aliases are expanded."""


class MalformedError(ValueError):
    """A document is not acceptable; ``line`` counts from 1, None if unknown."""

    def __init__(self, problem: str, line: int | None = None) -> None:
        super().__init__(f"line {line}: {problem}" if line else problem)
        self.problem = problem
        self.line = line


def shorten(text: str, limit: int = 160) -> str:
    """``text`` truncated to ``limit`` characters, for messages; secrets are masked before."""
    text = mask(text)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def show(value: Any, limit: int = 80) -> str:
    """A value for a message: short, however large or deeply shared the value is."""
    if isinstance(value, str):
        return shorten(repr(mask(value)[: limit + 1]), limit)
    if isinstance(value, dict | list | tuple | set):
        return f"a {type(value).__name__} of {len(value)}" if value else repr(value)
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 300:
        return f"an integer of {value.bit_length()} bits"
    return shorten(repr(value), limit)


def is_text(value: str) -> bool:
    """Whether a string is Unicode text, without halves of surrogate pairs."""
    return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON document; with NaN and infinities, as in Python.

    MalformedError: it is not JSON, not text, or an object has a key twice.
    """
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8")
        # Files that Windows tools wrote begin with a byte order mark, lines of joined ones too.
        text = text.removeprefix("\ufeff")
        value = json.loads(text, object_pairs_hook=_object)
        if "\\u" in text and "\\ud" in text.lower():
            json.dumps(value, ensure_ascii=False).encode()
    except MalformedError:
        raise
    except json.JSONDecodeError as error:
        raise MalformedError(f"{error.msg} at character {error.pos + 1}") from None
    except UnicodeDecodeError as error:
        raise MalformedError(f"not UTF-8 at byte {error.start + 1}") from None
    except UnicodeEncodeError:
        raise MalformedError("a \\u escape is half of a surrogate pair") from None
    except RecursionError:
        raise MalformedError("nested too deeply") from None
    except ValueError as error:  # a number with thousands of digits
        raise MalformedError(str(error).partition(";")[0]) from None
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object, of which Python would keep the last value of an equal key."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = Counter(key for key, _ in pairs)
        raise MalformedError(f"the key {show(keys.most_common(1)[0][0])} is given twice")
    return found


_BOOL, _INT, _FLOAT, _DATE = (
    f"tag:yaml.org,2002:{kind}" for kind in ("bool", "int", "float", "timestamp")
)


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, refusing duplicate keys and with booleans and numbers of YAML 1.2.

    PyYAML follows YAML 1.1, where a bare ``off`` is false. DVC writes YAML 1.2, where it is a
    string, and an arm has that name. In YAML 1.1 ``1e-4`` is a string, in 1.2 a number; ``1:30`` is
    90, and ``010`` is 8. Here it is a string, from which an integer key makes 10. So is a date.
    """

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {
        first: [(tag, pattern) for tag, pattern in found if tag not in (_BOOL, _INT, _FLOAT, _DATE)]
        for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable) and key in seen:
                line = key_node.start_mark.line + 1
                raise MalformedError(f"the key {show(key)} is given twice", line)
            if isinstance(key, Hashable):
                seen.add(key)
        return super().construct_mapping(node, deep=deep)


_Loader.add_implicit_resolver(
    _BOOL, re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)
_Loader.add_implicit_resolver(
    _INT, re.compile(r"^[-+]?(?:0|[1-9]\d*|0x[0-9a-fA-F]+)$"), list("-+0123456789")
)
_Loader.add_implicit_resolver(
    _FLOAT,
    re.compile(
        r"^(?:[-+]?(?:\d+\.\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?\d+[eE][-+]?\d+"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
    ),
    list("-+.0123456789"),
)


def parse_yaml(text: str) -> Any:
    """The value of a YAML document; only plain data, no Python objects.

    MalformedError: it is not YAML, a key is duplicated in a mapping, it is nested deeper than
    ``MAX_DEPTH``, or its aliases expand to more than ``MAX_NODES`` values.
    """
    # A study's files are read for every arm and rule.
    return copy.deepcopy(_parsed(text))


@functools.lru_cache(maxsize=64)
def _parsed(text: str) -> Any:
    try:
        value = yaml.load(text, Loader=_Loader)  # noqa: S506 - made from the safe one
    except MalformedError:
        raise
    except RecursionError:
        raise MalformedError("nested too deeply") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        problem = getattr(error, "problem", None) or getattr(error, "reason", None)
        raise MalformedError(
            shorten(problem or "not YAML"), mark.line + 1 if mark else None
        ) from None
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
        # PyYAML's constructors let Python errors through: `!!int ""`, impossible dates, …
        raise MalformedError(
            f"a value does not fit its tag ({shorten(str(error)) or type(error).__name__})"
        ) from None
    _check_size(value)
    return value


def _check_size(value: Any) -> None:
    """Refuse what is too deep, too large with its aliases expanded, or not text."""
    left = MAX_NODES
    waiting = [(value, 0)]
    while waiting:
        node, depth = waiting.pop()
        left -= 1
        if depth > MAX_DEPTH:
            raise MalformedError("nested too deeply, or an alias contains itself")
        if isinstance(node, dict):
            children = [*node.keys(), *node.values()]
        elif isinstance(node, list | tuple | set):
            children = list(node)
        else:
            if isinstance(node, str) and not is_text(node):
                raise MalformedError("a text contains half of a surrogate pair")
            continue
        left -= len(children)
        if left < 0:
            raise MalformedError("its aliases expand to too many values")
        waiting += [(child, depth + 1) for child in children]


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as dotted keys.

    >>> flatten({"a.b": 1, "a": {"b": 2, "c": {"d": 3}}})
    {'a.b': 2, 'a.c.d': 3}
    """
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat

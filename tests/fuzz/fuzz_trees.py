"""Mutation of valid trees (what YAML and JSON hold) and of valid texts."""

import copy
import datetime
import math
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

Path = tuple[Any, ...]

HOSTILE: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 63, 2**31, 2**63, -(2**63) - 1, 10**400),
    *(0.5, -0.0, 1e-5, 1e16, 1e308, 5e-324, math.nan, math.inf, -math.inf),
    *("", " ", "0", "1", "-1", "0.5", "nan", "inf", "true", "on", "null", "1e5", "1_000"),
    *("\x00", "\x1b[31m", "\n", "a\tb", "é", "數", "\U0001f642", "\u2028", "\u0085", "\u202e"),
    *("../../etc/passwd", "/dev/null", "{scale}", "{seed}", "a=b", "x #", "<", ">", "%", "'\""),
    *([], {}, [None], [[]], [1, "a"], [0.5, 1e-5]),
    *({"": 0}, {"a": {"b": 1}}, [{"a": 1}], "x" * 5000),
)
"""Values that JSON can hold."""
YAML_ONLY: tuple[Any, ...] = (
    *(datetime.date(2020, 2, 29), datetime.datetime(2020, 2, 29, 1, 2, 3), b"\xff\x00"),
    *({1: 2}, {None: 1}, {True: 1}, {0.5: 1}, {(1, 2): 3}, {datetime.date(2020, 1, 1): 1}),
)
KEYS = ("", "x", "a.b", "seed", "path", " seed", "ſeed", "__class__", "0", "k" * 300)


def places(tree: Any, prefix: Path = ()) -> Iterator[Path]:
    """Paths of all nodes below the root."""
    items: Any = ()
    if isinstance(tree, dict):
        items = tree.items()
    elif isinstance(tree, list):
        items = enumerate(tree)
    for key, value in items:
        yield (*prefix, key)
        yield from places(value, (*prefix, key))


def parent(tree: Any, path: Path) -> Any:
    """The container of the last step of a path."""
    for key in path[:-1]:
        tree = tree[key]
    return tree


def get(tree: Any, path: Path) -> Any:
    """The node at a path."""
    return parent(tree, path)[path[-1]] if path else tree


@st.composite
def mutated(draw: st.DrawFn, tree: Any, extra: tuple[Any, ...] = (), most: int = 3) -> Any:
    """A copy of ``tree`` after up to ``most`` changes; none at all for one case in ten.

    Args:
        draw: hypothesis'.
        tree: mappings, lists and scalars.
        extra: hostile values beside :data:`HOSTILE`.
        most: changes.
    """
    tree = copy.deepcopy(tree)
    values = HOSTILE + extra
    for _ in range(draw(st.integers(0, 9)) and draw(st.integers(1, most))):
        known = list(places(tree))
        if not known:
            break
        path = known[draw(st.integers(0, len(known) - 1))]
        holder, key = parent(tree, path), path[-1]
        change = draw(
            st.sampled_from(
                ("replace", "replace", "wrap", "text", "delete", "add", "rename", "copy")
            )
        )
        if change == "replace":
            holder[key] = copy.deepcopy(draw(st.sampled_from(values)))
        elif change == "wrap":
            holder[key] = draw(st.sampled_from(([holder[key]], {"value": holder[key]})))
        elif change == "text":
            holder[key] = draw(st.text(max_size=8) | st.just(str(holder[key])))
        elif change == "delete":
            del holder[key]
        elif change == "add" and isinstance(holder, dict):
            holder[draw(st.sampled_from(KEYS))] = copy.deepcopy(draw(st.sampled_from(values)))
        elif change == "rename" and isinstance(holder, dict):
            holder[draw(st.sampled_from(KEYS)) + str(key)] = holder.pop(key)
        elif change == "copy":
            other = known[draw(st.integers(0, len(known) - 1))]
            if other[: len(path)] != path and path[: len(other)] != other:
                holder[key] = copy.deepcopy(get(tree, other))
    return tree


@st.composite
def mutated_bytes(draw: st.DrawFn, content: bytes, inserts: tuple[bytes, ...] = ()) -> bytes:
    """``content`` truncated, with bytes flipped, cut out, repeated or inserted."""
    pieces = inserts or (b"\x00", b"\xff", b"\xed\xa0\x80", b"\r", b"\n", b"{", b"}", b'"', b"\\")
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(content)))
        change = draw(st.sampled_from(("truncate", "flip", "cut", "repeat", "insert", "noise")))
        if change == "truncate":
            content = content[:place]
        elif change == "flip" and place < len(content):
            bit = 1 << draw(st.integers(0, 7))
            content = content[:place] + bytes([content[place] ^ bit]) + content[place + 1 :]
        elif change == "cut":
            content = content[:place] + content[place + draw(st.integers(1, 40)) :]
        elif change == "repeat":
            content = content[:place] + content[max(0, place - draw(st.integers(1, 80))) :]
        elif change == "insert":
            content = content[:place] + draw(st.sampled_from(pieces)) + content[place:]
        elif change == "noise":
            content = content[:place] + draw(st.binary(max_size=12)) + content[place:]
    return content


@st.composite
def mutated_text(draw: st.DrawFn, text: str, inserts: tuple[str, ...]) -> str:
    """``text`` with lines removed, doubled or moved in, and hostile pieces put between them."""
    lines = text.split("\n")
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(lines) - 1))
        change = draw(st.sampled_from(("insert", "insert", "replace", "double", "drop", "indent")))
        if change == "insert":
            lines.insert(place, draw(st.sampled_from(inserts)))
        elif change == "replace":
            head = lines[place].partition(": ")[0]
            lines[place] = f"{head}: {draw(st.sampled_from(inserts))}"
        elif change == "double":
            lines.insert(draw(st.integers(0, len(lines))), lines[place])
        elif change == "drop" and len(lines) > 1:
            del lines[place]
        elif change == "indent":
            lines[place] = draw(st.sampled_from((" ", "\t", "- ", "? ", "#"))) + lines[place]
    return "\n".join(lines)

"""Make untrusted text harmless before it is quoted inside a scoring prompt.

What an actor writes is data. Here every string in it that could act as part of the prompt is
broken up, and nothing else is changed: ordinary arithmetic text comes out as it went in. The
order matters: first invisible characters go and look-alikes become ASCII, so that the later
rules see what a reader sees. :func:`neutralise` is idempotent.
"""

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

QUOTE_OPEN = "[["
QUOTE_CLOSE = "]]"

_BACKSLASHES = "\u2216\u29f5\u29f9\u27cd\u20e5\u3035\u2572\u1735"
_LOOK_ALIKES = {
    **dict.fromkeys(_BACKSLASHES, "\\"),
    "\u27e6": "[[",
    "\u27e7": "]]",
    "\u301a": "[[",
    "\u301b": "]]",
    "\u2774": "{",
    "\u2775": "}",
    "\u2983": "{",
    "\u2984": "}",
    "\u2223": "|",
    "\u2758": "|",
    "\u01c0": "|",
    "\u2039": "<",
    "\u203a": ">",
    "\u276e": "<",
    "\u276f": ">",
    "\ua78a": "=",
    "\u30a0": "=",
    "\u2028": "\n",
    "\u2029": "\n",
    "\u0085": "\n",
}
"""Characters without a compatibility decomposition that look like a marker's character."""

_LETTERS = {
    **dict.fromkeys("вьЬВβΒḃƀɓᏏＢ", "b"),
    **dict.fromkeys("оОοΟօσ0ѳөӧöóòôøơºᴏ", "o"),
    **dict.fromkeys("хХχΧ×ⅹ✕✖⨯ҳẋẍᴠⲭ", "x"),
}
"""Letters that look like b, o or x; used to *recognise* a box, never to rewrite text."""

_REWRITTEN_TAGS = ("<wide>", "<narrow>", "<small>", "<font>", "<compat>", "<noBreak>", "<circle>")
_BOX_WINDOW = 24
_SPECIAL_WORDS = (
    "s|bos|eos|pad|unk|mask|sep|cls|think|tool_call|tool_response|im_start|im_end|endoftext|"
    "start_of_turn|end_of_turn|start_of_image|sys|system|user|assistant"
)
_ANGLE_BAR = re.compile(r"<(?=\|[^<>\s]{1,64}\|>)")
_ANGLE_WORD = re.compile(rf"<(?=/?(?:{_SPECIAL_WORDS})>)", re.IGNORECASE)
_SQUARE_WORD = re.compile(r"\[(?=/?(?:inst|cls|sep|mask|pad|unk|bos|eos|gmask)\])", re.IGNORECASE)


@lru_cache(maxsize=65536)
def _plain_char(char: str) -> str:
    """The ASCII character that ``char`` imitates, "" if it is invisible, else ``char`` itself."""
    if char.isascii():
        return char if char in "\n\t" or char.isprintable() else ""
    if char in _LOOK_ALIKES:
        return _LOOK_ALIKES[char]
    if unicodedata.category(char) in ("Cf", "Cc", "Cs", "Co", "Cn"):
        return ""
    if 0x115F <= ord(char) <= 0x1160 or ord(char) in (0x034F, 0x2800, 0x3164, 0xFFA0):
        return ""  # fillers: drawn as nothing although they count as letters or marks
    if unicodedata.category(char) == "Zs":
        return " "
    # Superscripts and fractions also have compatibility forms, but x² must not become x2.
    if unicodedata.decomposition(char).split(" ", 1)[0] in _REWRITTEN_TAGS:
        plain = unicodedata.normalize("NFKC", char)
        if len(plain) == 1 and plain.isascii() and unicodedata.category(char) != "No":
            return plain
    return char


def _fold_look_alikes(text: str) -> str:
    """Remove invisible characters and rewrite look-alikes; NFC, so that é stays one letter."""
    text = unicodedata.normalize("NFC", text.replace("\r\n", "\n").replace("\r", "\n"))
    kept: list[str] = []
    for char in text:
        if unicodedata.category(char) in ("Mn", "Me") and char not in _BACKSLASHES:
            # A mark on punctuation only disguises it; marks on letters of a script are text.
            if kept and kept[-1][-1].isalpha() and not kept[-1][-1].isascii():
                kept.append(char)
            continue
        plain = _plain_char(char)
        if plain:
            kept.append(plain)
    return "".join(kept)


def _starts_with_box(text: str) -> bool:
    letters: list[str] = []
    for char in unicodedata.normalize("NFD", text):
        letter = _LETTERS.get(char, char.casefold())
        if letter.isalnum():
            letters.append(letter)
            if "box"[: len(letters)] != "".join(letters)[:3]:
                return False
            if len(letters) == 3:
                return True
    return False


def _drop_box_backslashes(text: str) -> str:
    """Turn ``\\box`` and ``\\boxed``, also spaced or disguised, into ``box`` and ``boxed``."""
    if "\\" not in text:
        return text
    kept: list[str] = []
    # From the right: in a run of backslashes each sees what follows the ones already dropped.
    tail = ""
    for char in reversed(text):
        if char == "\\" and _starts_with_box(tail.replace("\\", "")):
            continue
        kept.append(char)
        tail = (char + tail)[:_BOX_WINDOW]
    return "".join(reversed(kept))


def _break_up(text: str, marker: str) -> str:
    """Put a space after the first character of every occurrence, overlapping ones too."""
    while marker in text:
        text = text.replace(marker, f"{marker[0]} {marker[1:]}")
    return text


def _once(text: str, markers: tuple[str, ...]) -> str:
    text = _drop_box_backslashes(_fold_look_alikes(text))
    text = _ANGLE_BAR.sub("< ", text)
    text = _ANGLE_WORD.sub("< ", text)
    text = _SQUARE_WORD.sub("[ ", text)
    for marker in markers:
        text = _break_up(text, marker)
    return text.strip()


def neutralise(text: str, markers: Iterable[str] = ()) -> str:
    """Untrusted ``text`` with everything broken up that could act as part of a prompt; stripped.

    ``markers`` are broken up beside the quotes: the separator, special tokens. Those of one
    character or with white space are ignored: a space could not break them. A space is kept
    between a final ``]`` and the closing quote, and before a leading ``[``.
    """
    wanted = {QUOTE_OPEN, QUOTE_CLOSE}
    wanted.update(m for m in markers if len(m) > 1 and not any(c.isspace() for c in m))
    # Longest first, so that the order does not depend on the caller.
    ordered = tuple(sorted(wanted, key=lambda m: (-len(m), m)))
    # A rule may uncover work for an earlier one; each pass breaks or drops at least one
    # character sequence for good, so that the loop ends.
    previous = None
    while text != previous:
        previous, text = text, _once(text, ordered)
    return (" " if text.startswith("[") else "") + text + (" " if text.endswith("]") else "")

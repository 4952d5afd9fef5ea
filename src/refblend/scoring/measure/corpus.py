"""The fixed corpus of responses for experiment D, judge quality and the attacks.

A *corpus* is a data frame with the columns ``question``, ``response`` and ``label`` (1 right,
0 wrong), and where known ``difficulty`` (steps of the problem), ``length``, ``worked`` (the
response shows an equation) and ``target`` (a perfect judge's score); further columns are kept.
The fixed one has for each problem of a prompt file its gold solution, a wrong one, and long forms
of both. Files of sampled responses are read too.
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from refblend.data.equations import EQUATION
from refblend.data.schema import PromptRow, read_records
from refblend.documents import show
from refblend.errors import DataError
from refblend.seeding import derive_generator

_FILLER = (
    "It is a warm day.",
    "Let me think.",
    "The sun is out and the sky is blue.",
    "A cat sits near the door.",
    "I look at the numbers again.",
)
_NUMBER = re.compile(r"\d+")
KINDS = ("right", "wrong", "right_long", "wrong_long", "right_very_long", "wrong_very_long")
"""Long: some 20 filler sentences; very long: some 250, more than a prompt of 768 tokens holds."""
_FILLERS = {"long": 20, "very_long": 250}
_MOST_DIGITS = 1000
"""Of an answer that is changed into a wrong one; Python reads a few more."""


def wrong_solution(solution: str, answer: str, rng: np.random.Generator) -> str:
    """The solution with another final answer, also in its last equation if stated there."""
    digits = _NUMBER.search(answer.replace(",", ""))
    if digits is None or len(digits[0]) > _MOST_DIGITS:
        return "#### unknown"
    value = int(digits[0])
    offset = int(rng.integers(1, 4))
    other = value - offset if value >= offset and rng.random() < 0.5 else value + offset
    body, _, _ = solution.rpartition("####")
    stated = re.compile(rf"(=\s*){value}(?!\d)(?!.*=\s*{value}(?!\d))", re.DOTALL)
    body = stated.sub(lambda match: f"{match[1]}{other}", body)
    return f"{body}#### {other}"


def lengthened(solution: str, sentences: int, rng: np.random.Generator) -> str:
    """The solution after that many sentences of filler."""
    filler = " ".join(_FILLER[int(i)] for i in rng.integers(0, len(_FILLER), sentences))
    return f"{filler} {solution}"


def corpus_from_rows(
    rows: Sequence[PromptRow],
    kinds: Sequence[str] = KINDS,
    max_rows: int | None = None,
) -> pd.DataFrame:
    """The fixed corpus for these prompts: a row per problem with a gold solution, and kind.

    ``max_rows`` problems at most, of every difficulty as many, evenly spaced. Columns beside a
    corpus's own: ``kind`` and the problem's ``index``. DataError if none has a solution that ends
    with ``#### answer``: of another a wrong one cannot be made.
    """
    usable = [row for row in rows if "####" in row.solution]
    if not usable:
        raise DataError(
            "corpus: no row has a worked solution that ends with `#### answer`",
            "Give a file with such solutions, or labelled responses (--corpus).",
        )
    records = []
    for row in _of_every_difficulty(usable, max_rows):
        for kind in kinds:
            # The wrong answer is the same in all lengths, so that they differ in length only.
            rng = derive_generator(0, "corpus", row.index, kind.split("_")[0])
            right = kind.startswith("right")
            text = row.solution if right else wrong_solution(row.solution, row.ground_truth, rng)
            length = kind.partition("_")[2]
            text = lengthened(text, _FILLERS[length], rng) if length else text
            records.append(
                {
                    "question": row.question,
                    "response": text,
                    "label": int(right),
                    "worked": EQUATION.search(text) is not None,
                    "kind": kind,
                    "length": length or "plain",
                    "difficulty": _difficulty(row),
                    "index": row.index,
                }
            )
    return pd.DataFrame(records)


def spread(count: int, limit: int | None) -> list[int]:
    """At most ``limit`` evenly spaced places out of ``count``; all when it is None."""
    if limit is None or count <= limit:
        return list(range(count))
    return [int(i) for i in np.linspace(0, count - 1, limit).round()]


def _difficulty(row: PromptRow) -> int:
    """The steps of a row's solution; 0 where it does not say."""
    steps: Any = row.extra.get("n_steps")
    return int(steps) if _is_number(steps) else 0


def _of_every_difficulty(rows: Sequence[PromptRow], limit: int | None) -> list[PromptRow]:
    """At most ``limit`` rows in their order; rare difficulties give all they have."""
    groups: dict[int, list[int]] = {}
    for place, row in enumerate(rows):
        groups.setdefault(_difficulty(row), []).append(place)
    left = len(rows) if limit is None else limit
    chosen: list[int] = []
    for done, places in enumerate(sorted(groups.values(), key=len)):
        share = left // (len(groups) - done)
        chosen += [places[i] for i in spread(len(places), share)]
        left -= min(len(places), share)
    return [rows[place] for place in sorted(chosen)]


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    """Whether a cell is a finite number of at most 64 bits; a truth value is none."""
    return type(value) in (int, float) and abs(value) < 2**63  # NaN is not below


def _is_truth(value: Any) -> bool:
    return isinstance(value, bool) or (_is_number(value) and value in (0, 1))


def _is_absent(value: Any) -> bool:
    return value is None or value != value


def _is_group(value: Any) -> bool:
    return _is_absent(value) or _is_number(value) or _is_text(value)


Cells = dict[str, tuple[Callable[[Any], bool], str]]
"""Column → what its cells must be, and the words for one that is not."""

_SAMPLE: Cells = {"question": (_is_text, "is not text"), "response": (_is_text, "is not text")}
_CORPUS: Cells = {
    **_SAMPLE,
    "label": (_is_truth, "is neither 0 nor 1"),
    "worked": (_is_truth, "is neither true nor false"),
    "target": (lambda value: _is_number(value) and 0 <= value <= 1, "is not a number from 0 to 1"),
    "difficulty": (_is_group, "is neither a number nor text"),
    "length": (_is_group, "is neither a number nor text"),
}
_PAIRS: Cells = {
    "label": (_is_number, "is not a number"),
    "right": (_is_truth, "is neither true nor false"),
    "steps": (lambda value: isinstance(value, list), "is not a list"),
}


def _check(frame: pd.DataFrame, required: Sequence[str], cells: Cells, name: str) -> None:
    missing = [column for column in required if column not in frame.columns]
    if missing or frame.empty:
        raise DataError(
            f"{name}: {'missing ' + ', '.join(missing) if missing else 'no rows'}",
            f"Give rows with the columns {', '.join(required)}.",
        )
    problems = []
    for column, (fits, what) in cells.items():
        values = frame[column].tolist() if column in frame.columns else []
        bad = next((row for row, value in enumerate(values) if not fits(value)), None)
        if bad is not None:
            problems.append(f"{column} of row {bad} {what}: {show(values[bad])}")
        elif len({_is_text(value) for value in values if not _is_absent(value)}) > 1:
            problems.append(f"{column} holds both numbers and texts")
    if problems:
        raise DataError(
            f"{name}: {'; '.join(problems)}", "Correct the cells, or leave an optional column out."
        )


def read_corpus(path: str | Path) -> pd.DataFrame:
    """A file of labelled responses, or of judge pairs, as a corpus; DataError lists bad columns.

    Pairs have ``right`` and ``steps``; their ``label`` becomes the ``target``.
    """
    frame = read_responses(path)
    if set(_PAIRS) <= set(frame.columns):
        _check(frame, list(_PAIRS), _PAIRS, str(path))
        frame = frame.assign(
            target=frame["label"].astype(float),
            label=frame["right"].astype(int),
            difficulty=frame["steps"].map(len),
        ).drop(columns=["right", "steps"])
    if "worked" not in frame:
        frame["worked"] = [EQUATION.search(text) is not None for text in frame["response"]]
    _check(frame, ("question", "response", "label"), _CORPUS, str(path))
    return frame.assign(worked=frame["worked"].astype(bool))


def read_responses(path: str | Path) -> pd.DataFrame:
    """A jsonl or parquet file with the texts ``question`` and ``response``, or DataError."""
    frame = pd.DataFrame(read_records(path))
    _check(frame, list(_SAMPLE), _SAMPLE, str(path))
    return frame

"""The fixed corpus of responses for experiment D, judge quality and the attacks.

A *corpus* is a data frame with the columns ``question``, ``response`` and ``label`` (1 right,
0 wrong), and where known ``difficulty`` (steps of the problem), ``length``, ``worked`` (the
response shows an equation) and ``target`` (a perfect judge's score); further columns are kept.

The fixed corpus is made from the rows of a prompt file alone, without a model: for each problem its
gold solution, a wrong one, and long forms of both, so that every length limit bites. Correctness is
known by construction. Files of sampled responses, with labels of the user's or as
``refblend models judge-data`` writes them, are read too.
"""

import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from refblend.data.equations import count_equations
from refblend.data.schema import PARQUET_ERRORS, PromptRow
from refblend.documents import MalformedError, parse_json, shorten, show
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
CORPUS_COLUMNS = ("question", "response", "label")


def wrong_solution(solution: str, answer: str, rng: np.random.Generator) -> str:
    """The solution with another final answer; where its last equation states it, there too."""
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
    seed: int = 0,
    kinds: Sequence[str] = KINDS,
    max_rows: int | None = None,
) -> pd.DataFrame:
    """The fixed corpus for these prompts: a row a problem and kind.

    Args:
        rows: problems with gold solutions; others are left out.
        seed: of the corruptions.
        kinds: a subset of ``KINDS``.
        max_rows: use that many problems at most, of every difficulty as many, evenly spaced.

    Returns:
        ``question``, ``response``, ``label`` (1 right, 0 wrong), ``worked``, ``kind``, ``length``
        (``plain``, ``long``, ``very_long``), ``difficulty`` (the problem's number of steps; 0 when
        unknown), ``index`` (the problem's).

    Raises:
        DataError: no row has a solution, or a kind is unknown.
    """
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown:
        raise DataError(f"corpus: unknown kind {unknown[0]!r}", f"Use {', '.join(KINDS)}.")
    usable = [row for row in rows if row.solution]
    if not usable:
        raise DataError("corpus: no row has a worked solution", "Give a file with solutions.")
    records = []
    for row in _of_every_difficulty(usable, max_rows):
        for kind in kinds:
            # The wrong answer is the same in all lengths, so that they differ in length only.
            rng = derive_generator(seed, "corpus", row.index, kind.split("_")[0])
            right = kind.startswith("right")
            text = row.solution if right else wrong_solution(row.solution, row.ground_truth, rng)
            length = kind.partition("_")[2]
            text = lengthened(text, _FILLERS[length], rng) if length else text
            records.append(
                {
                    "question": row.question,
                    "response": text,
                    "label": int(right),
                    "worked": count_equations(text) > 0,
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
    steps = row.extra.get("n_steps")
    if steps is None:
        return 0
    if not _is_number(steps) or steps != int(steps) or not 0 <= steps < 1000:
        raise DataError(
            f"corpus: extra_info.n_steps of the row with index {row.index} is {show(steps)}",
            "Give the number of steps of its solution, or leave it out.",
        )
    return int(steps)


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


def check_corpus(corpus: pd.DataFrame, name: str = "corpus") -> None:
    """Refuse a frame that is not a corpus; ``name`` is its name in the error.

    Raises:
        DataError: a column is missing, a cell is empty, a label is neither 0 nor 1, or a cell of
            an optional column does not fit it.
    """
    missing = [c for c in CORPUS_COLUMNS if c not in corpus.columns]
    if missing or corpus.empty:
        raise DataError(
            f"{name}: {'no rows' if not missing else 'missing ' + ', '.join(missing)}",
            f"Give rows with the columns {', '.join(CORPUS_COLUMNS)}.",
        )
    for column in ("question", "response"):
        bad = [i for i, value in enumerate(corpus[column]) if not isinstance(value, str)]
        if bad:
            raise DataError(
                f"{name}: {column} of row {bad[0]} is not text", "Give a string in every row."
            )
    if not corpus["label"].isin([0, 1]).all():
        raise DataError(f"{name}: a label is neither 0 nor 1", "Label right answers 1, others 0.")
    for column, (fits, what) in _OPTIONAL.items():
        if column in corpus.columns:
            _check_cells(corpus, column, fits, what, name)


def _is_number(value: Any) -> bool:
    """Whether a cell is a finite number; a truth value is none."""
    if isinstance(value, bool | np.bool_):
        return False
    if isinstance(value, int | np.integer):
        return abs(int(value)) < 2**63
    return isinstance(value, float | np.floating) and math.isfinite(value)


def _is_truth(value: Any) -> bool:
    return isinstance(value, bool | np.bool_) or (_is_number(value) and value in (0, 1))


def _is_absent(value: Any) -> bool:
    return value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value))


def _is_group(value: Any) -> bool:
    return _is_absent(value) or _is_number(value) or isinstance(value, str)


def _is_sequence(value: Any) -> bool:
    return isinstance(value, list | tuple | np.ndarray)


_OPTIONAL: dict[str, tuple[Callable[[Any], bool], str]] = {
    "worked": (_is_truth, "is neither true nor false"),
    "target": (lambda value: _is_number(value) and 0 <= value <= 1, "is not a number from 0 to 1"),
    "difficulty": (_is_group, "is neither a number nor text"),
    "length": (_is_group, "is neither a number nor text"),
}


def _check_cells(
    frame: pd.DataFrame, column: str, fits: Callable[[Any], bool], what: str, name: str
) -> None:
    """Refuse a column with a cell that does not fit, or with both numbers and texts."""
    for number, value in enumerate(frame[column], start=1):
        if not fits(value):
            raise DataError(
                f"{name}: {column} of row {number} {what}: {show(value)}",
                "Correct the cell or leave the column out.",
            )
    kinds = {isinstance(value, str) for value in frame[column] if not _is_absent(value)}
    if len(kinds) > 1:
        raise DataError(
            f"{name}: {column} holds both numbers and texts", "Use one of the two in all rows."
        )


def read_corpus(path: str | Path) -> pd.DataFrame:
    """A file of labelled responses as a corpus: a user's, or pairs that judges learn from.

    A file of pairs has ``right`` and ``steps`` beside a ``label`` in [0.05, 1]: its label becomes
    the ``target``, ``right`` the label, and the number of steps the difficulty.

    Raises:
        DataError: the file cannot be read or is not a corpus.
    """
    frame = read_responses(path)
    if {"right", "steps", "label"} <= set(frame.columns):
        _check_cells(frame, "label", _is_number, "is not a number", str(path))
        _check_cells(frame, "right", _is_truth, "is neither true nor false", str(path))
        _check_cells(frame, "steps", _is_sequence, "is not a list", str(path))
        frame = frame.assign(
            target=frame["label"].astype(float),
            label=frame["right"].astype(int),
            difficulty=frame["steps"].map(len),
        ).drop(columns=["right", "steps"])
    if "worked" not in frame:
        frame["worked"] = [count_equations(text) > 0 for text in frame["response"]]
    check_corpus(frame, str(path))
    return frame.assign(worked=frame["worked"].astype(bool))


def read_responses(path: str | Path) -> pd.DataFrame:
    """A file of responses: jsonl or parquet with ``question`` and ``response``; more is kept.

    Raises:
        DataError: the file cannot be read, or a row lacks one of the two as text; names the line.
    """
    path = Path(path)
    remedy = 'Give jsonl (or parquet) rows like {"question": …, "response": …}.'
    try:
        if path.suffix == ".parquet":
            frame = pd.read_parquet(path)
        else:
            frame = pd.DataFrame(_read_lines(path, remedy))
    except (OSError, *PARQUET_ERRORS) as error:
        raise DataError(f"{path}: cannot be read ({shorten(str(error), 300)})", remedy) from error
    for column in ("question", "response"):
        if column not in frame.columns:
            raise DataError(f"{path}: no column {column!r} or no rows", remedy)
        bad = [i for i, value in enumerate(frame[column], 1) if not isinstance(value, str)]
        if bad:
            raise DataError(f"{path}: row {bad[0]}: {column} is not text", remedy)
    if frame.empty:
        raise DataError(f"{path}: no rows", remedy)
    return frame


def _read_lines(path: Path, remedy: str) -> list[dict[str, object]]:
    rows = []
    with open(path, encoding="utf-8") as stream:
        for number, line in enumerate(stream, start=1):
            if not line.strip():
                continue
            try:
                row = parse_json(line)
            except MalformedError as error:
                raise DataError(f"{path}: line {number} is not JSON ({error})", remedy) from error
            if not isinstance(row, dict):
                raise DataError(f"{path}: line {number} is not a JSON object", remedy)
            rows.append(row)
    return rows

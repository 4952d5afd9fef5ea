"""The fixed corpus of responses for experiment D, judge quality and the attacks.

Made from the rows of a prompt file alone, without a model: for each problem its gold solution,
a wrong one, and long forms of both, so that every length limit bites. Correctness is known by
construction. Files of sampled responses are read too.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from refblend.data.schema import PromptRow
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


def wrong_solution(solution: str, answer: str, rng: np.random.Generator) -> str:
    """The solution with another final answer; where its last equation states it, there too."""
    digits = _NUMBER.search(answer.replace(",", ""))
    if digits is None:
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
        max_rows: use evenly spaced problems only, at most that many.

    Returns:
        ``question``, ``response``, ``label`` (1 right, 0 wrong), ``kind``, ``difficulty`` (the
        problem's number of steps; 0 when unknown), ``index`` (the problem's).

    Raises:
        DataError: no row has a solution, or a kind is unknown.
    """
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown:
        raise DataError(f"corpus: unknown kind {unknown[0]!r}", f"Use {', '.join(KINDS)}.")
    usable = [row for row in rows if row.solution]
    if not usable:
        raise DataError("corpus: no row has a worked solution", "Give a file with solutions.")
    if max_rows is not None and len(usable) > max_rows:
        places = np.linspace(0, len(usable) - 1, max_rows).round().astype(int)
        usable = [usable[int(i)] for i in places]
    records = []
    for row in usable:
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
                    "kind": kind,
                    "difficulty": int(row.extra.get("n_steps") or 0),
                    "index": row.index,
                }
            )
    return pd.DataFrame(records)


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
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise DataError(f"{path}: cannot be read ({str(error).splitlines()[0]})", remedy) from error
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
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise DataError(
                    f"{path}: line {number} is not JSON ({error.msg})", remedy
                ) from error
            if not isinstance(row, dict):
                raise DataError(f"{path}: line {number} is not a JSON object", remedy)
            rows.append(row)
    return rows

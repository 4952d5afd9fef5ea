"""Prompt files in verl's schema: parquet (or jsonl) rows, checked by name, row and column.

Columns: ``data_source`` str; ``prompt`` list of ``{role, content}``; ``ability`` str;
``reward_model`` ``{style, ground_truth}``; ``extra_info`` (``index``, ``split``, ``question``,
``answer`` and whatever else the source knows). Only ``data_source``, ``prompt`` and
``reward_model.ground_truth``, a text or a number, are required, so that most files prepared for
verl load unchanged.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from refblend.documents import MalformedError, is_text, parse_json, shorten, show
from refblend.errors import DataError
from refblend.files import atomic_path, how_to_get

REQUIRED_COLUMNS = ("data_source", "prompt", "reward_model")
PARQUET_ERRORS = (pa.ArrowException, ValueError, OverflowError, LookupError, MemoryError)
"""Exceptions from reading a damaged parquet file, besides OSError."""
MAX_INDEX = 2**63 - 1
ROLES = ("system", "user", "assistant", "tool")
_CONVERT = "Rename the columns, or make rows with refblend.data.schema.write_rows."


@dataclass(frozen=True)
class PromptRow:
    """One prompt: ``messages`` go through the chat template, ``ground_truth`` is the answer.

    ``index`` is the row's own or its position; one that is a text stays in ``extra``, too.
    ``solution`` is the worked gold solution, ``""`` if the file has none.
    """

    index: int
    data_source: str
    messages: list[dict[str, str]]
    question: str
    ground_truth: str
    solution: str
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def extra_info(self) -> dict[str, Any]:
        """What verl passes to a reward function: the whole column, including index and texts."""
        return {
            "index": self.index,
            **self.extra,
            "question": self.question,
            "answer": self.solution,
        }


def write_rows(path: str | os.PathLike[str], rows: Iterable[PromptRow]) -> None:
    """Write rows as parquet, atomically; DataError for no rows."""
    records = [
        {
            "data_source": row.data_source,
            "prompt": row.messages,
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": row.ground_truth},
            "extra_info": row.extra_info,
        }
        for row in rows
    ]
    if not records:
        raise DataError(f"no rows to write to {path}", "Ask for at least one row.")
    with atomic_path(path) as temporary:
        pq.write_table(pa.Table.from_pylist(records), temporary)


def read_rows(path: str | os.PathLike[str]) -> list[PromptRow]:
    """Read a parquet or jsonl file of verl's schema; DataError names row and column."""
    path = Path(path)
    records = read_records(path)
    columns = set().union(*(record.keys() for record in records))
    missing = [name for name in REQUIRED_COLUMNS if name not in columns]
    if missing:
        found = shorten(", ".join(sorted(columns)), 300) or "none"
        raise DataError(
            f"{path} lacks the column(s) {', '.join(missing)} (it has: {found})", _CONVERT
        )
    return [_parse_record(path, number, record) for number, record in enumerate(records)]


def read_records(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Read a parquet or jsonl file, one dictionary per row; DataError if it has none."""
    path = Path(path)
    if not path.is_file():
        kind = "is a directory" if path.is_dir() else "does not exist"
        remedy = how_to_get(path, "Check the path, or write the file.")
        raise DataError(f"data file {path} {kind}", remedy)
    readers = {".jsonl": _read_jsonl, ".parquet": _read_parquet}
    if path.suffix not in readers:
        raise DataError(
            f"{path} has an unknown file suffix", "Use a name that ends in .parquet or .jsonl."
        )
    try:
        records = readers[path.suffix](path)
    except (OSError, *PARQUET_ERRORS) as error:
        # pyarrow reports corrupt pages as an OSError without an errno
        system = isinstance(error, OSError) and error.errno is not None
        raise DataError(
            f"{path} cannot be read ({shorten(str(error), 300)})",
            "Check the file's permissions." if system else "Write the file again.",
        ) from error
    if not records:
        raise DataError(f"{path} has no rows", "Write the file again.")
    return records


def number_text(number: float | Decimal) -> str:
    """A number in plain digits: no exponent, and no point if it is whole.

    A float of 32 bits, such as 0.1 read as 0.10000000149011612, is written as it was meant.

    >>> number_text(0.00001), number_text(1e16), number_text(5.0)
    ('0.00001', '10000000000000000', '5')
    """
    if isinstance(number, float):
        with np.errstate(over="ignore"):
            single = np.float32(number)
        long = len(repr(number)) > len("0.123456789012345") and not number.is_integer()
        widened = long and float(single) == number
        number = Decimal(str(single if widened else number))
    text = format(Decimal(number), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _read_parquet(path: Path) -> list[dict[str, Any]]:
    table = pq.ParquetFile(path, page_checksum_verification=True).read()
    table.validate(full=True)
    twice = {name for name in table.column_names if table.column_names.count(name) > 1}
    if twice:
        raise DataError(
            f"{path} has the column {show(min(twice))} more than once", "Rename the others."
        )
    return table.to_pylist()


def _read_jsonl(path: Path) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = []
    # not splitlines(): JSON strings may hold other line separators, such as U+2028
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").split("\n"), start=1):
        if not line.strip():
            continue
        try:
            record = parse_json(line)
            if not isinstance(record, dict):
                raise MalformedError(f"{show(record)} is no object")
        except MalformedError as error:
            told = f"{path} line {number} is not JSON of a row ({error})"
            raise DataError(told, "Fix or remove the line.") from error
        records.append(record)
    return records


def _parse_record(path: Path, number: int, record: dict[str, Any]) -> PromptRow:
    def fail(column: str, what: str) -> DataError:
        return DataError(f"{path} row {number} column {column} {what}", "Fix or remove the row.")

    def text(container: dict[str, Any], key: str, column: str) -> str:
        value = container.get(key)
        if value is None:
            raise fail(column, "is null")
        if not isinstance(value, str):
            raise fail(column, f"is {type(value).__name__}, not a string")
        if not is_text(value):
            raise fail(column, "contains half of a surrogate pair, which is not text")
        return value

    source = text(record, "data_source", "data_source")
    prompt = record.get("prompt")
    if not isinstance(prompt, list) or not prompt:
        raise fail("prompt", "is not a non-empty list of {role, content}")
    messages = []
    for place, message in enumerate(prompt):
        if not isinstance(message, dict):
            raise fail(f"prompt[{place}]", "is not an object with role and content")
        role = text(message, "role", f"prompt[{place}].role")
        if role not in ROLES:
            raise fail(f"prompt[{place}].role", f"is {show(role)}, not one of {', '.join(ROLES)}")
        messages.append(
            {"role": role, "content": text(message, "content", f"prompt[{place}].content")}
        )
    if role == "assistant":
        raise fail("prompt", "ends with the message of an assistant, the actor's part")
    reward = record.get("reward_model")
    if not isinstance(reward, dict):
        raise fail("reward_model", "is not an object")
    truth = reward.get("ground_truth")
    if isinstance(truth, int | float | Decimal) and not isinstance(truth, bool):
        if isinstance(truth, float | Decimal) and not Decimal(truth).is_finite():
            raise fail("reward_model.ground_truth", f"is {truth}, not a finite number")
        truth = number_text(truth)
    ground_truth = text({"ground_truth": truth}, "ground_truth", "reward_model.ground_truth")
    extra = record.get("extra_info")
    extra = {} if extra is None else extra
    if not isinstance(extra, dict):
        raise fail("extra_info", "is not an object")
    index = extra.get("index")
    # Some sets have hashes.
    name = {"index": text(extra, "index", "extra_info.index")} if isinstance(index, str) else {}
    index = number if name or index is None else index  # parquet has null where a row has none
    if isinstance(index, bool) or not isinstance(index, int):
        raise fail("extra_info.index", f"is {type(index).__name__}, not an integer or a text")
    if abs(index) > MAX_INDEX:
        raise fail("extra_info.index", "is beyond 64 bits")
    question, solution = (
        text(extra, key, f"extra_info.{key}") if extra.get(key) is not None else ""
        for key in ("question", "answer")
    )
    question = question or messages[-1]["content"]
    rest = {k: v for k, v in extra.items() if k not in ("index", "question", "answer")}
    return PromptRow(index, source, messages, question, ground_truth, solution, name | rest)

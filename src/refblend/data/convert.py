"""Files of questions and answers, one row each, as prompt rows."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from refblend.data.gsm8k import DATA_SOURCE, INSTRUCTION
from refblend.data.schema import PromptRow, read_records
from refblend.documents import shorten, show
from refblend.errors import DataError


@dataclass(frozen=True)
class Columns:
    """Which columns of a file hold what."""

    question: str = "question"
    answer: str = "answer"
    """A text or an integer; of a text with ``####`` the part after the last one is the answer."""
    solution: str | None = None
    """A worked solution; None: the answer's text, where it has ``####``."""


def convert(
    path: Path, columns: Columns, data_source: str = DATA_SOURCE, instruction: str = INSTRUCTION
) -> list[PromptRow]:
    """The rows of a parquet or jsonl file (else DataError); ``instruction`` ends each prompt."""
    records = read_records(path)
    names = [columns.question, columns.answer, columns.solution]
    found = set().union(*(record.keys() for record in records))
    if missing := [name for name in names if name is not None and name not in found]:
        raise DataError(
            f"{path} lacks the column(s) {', '.join(missing)} (it has: "
            f"{shorten(', '.join(sorted(found)), 300)})",
            "Name yours with --question, --answer and --solution.",
        )

    def text(number: int, record: dict[str, Any], column: str) -> str:
        value = record.get(column)
        value = str(value) if type(value) is int else value
        if not isinstance(value, str) or not value.strip():
            raise DataError(
                f"{path} row {number} column {column} is {show(value)}, not a text",
                "Fix or remove the row.",
            )
        return value.strip()

    rows = []
    for number, record in enumerate(records):
        question, answer = (text(number, record, name) for name in names[:2] if name)
        worked, marked, last = answer.rpartition("####")
        solution = text(number, record, columns.solution) if columns.solution else ""
        rows.append(
            PromptRow(
                index=number,
                data_source=data_source,
                messages=[{"role": "user", "content": f"{question} {instruction}".strip()}],
                question=question,
                ground_truth=last.strip().replace(",", "") if marked else answer,
                solution=solution or (answer if marked and worked.strip() else ""),
            )
        )
    return rows

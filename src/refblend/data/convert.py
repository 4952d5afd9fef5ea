"""Files of questions and answers, one row each, as prompt rows."""

from pathlib import Path
from typing import Any

from refblend.data.gsm8k import DATA_SOURCE, INSTRUCTION
from refblend.data.schema import PromptRow, read_records
from refblend.documents import shorten, show
from refblend.errors import DataError


def convert(
    path: Path,
    names: tuple[str, str, str | None] = ("question", "answer", None),
    data_source: str = DATA_SOURCE,
    instruction: str = INSTRUCTION,
) -> list[PromptRow]:
    """The rows of a parquet or jsonl file (else DataError); ``instruction`` ends each prompt.

    ``names`` are the columns of question, answer and worked solution. An answer is a text or an
    integer; of a text with ``####`` it is what comes after the last one, and without a column of
    its own such a text is the solution, too.
    """
    records = read_records(path)
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
        solution = text(number, record, names[2]) if names[2] else ""
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

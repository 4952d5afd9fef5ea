"""The real GSM8K, from a local file or a local ``datasets`` cache, in verl's schema.

Source of the format: https://github.com/openai/grade-school-math (``question``, ``answer`` whose
last line is ``#### <number>``); the instruction appended to each question is taken from verl.
"""

import os
import re
from pathlib import Path
from typing import Any

from refblend.data.schema import PromptRow, read_records
from refblend.errors import DataError

DATA_SOURCE = "openai/gsm8k"
INSTRUCTION = 'Let\'s think step by step and output the final answer after "####".'
_ANSWER = re.compile(r"####\s*(-?[0-9.,]+)\s*$")
_NUMBER = re.compile(r"-?([0-9]+(\.[0-9]+)?|\.[0-9]+)")
_REMEDY = "Give a GSM8K file with the columns question and answer."


def extract_answer(solution: str) -> str | None:
    """The number after the last ``####``, without thousands separators; None if there is none."""
    found = _ANSWER.search(solution.strip())
    answer = found.group(1).replace(",", "").rstrip(".") if found else ""
    return answer if _NUMBER.fullmatch(answer) else None


def convert_records(records: list[dict[str, Any]], split: str, source: str) -> list[PromptRow]:
    """``question``/``answer`` rows as prompt rows; ``source`` names the input in errors.

    Raises:
        DataError: a row lacks a column or has no ``#### number``.
    """
    rows = []
    for index, record in enumerate(records):
        for column in ("question", "answer"):
            value = record.get(column)
            if not isinstance(value, str) or not value.strip():
                raise DataError(f"{source} row {index} has no text in column {column}", _REMEDY)
        answer = extract_answer(record["answer"])
        if answer is None:
            raise DataError(f"{source} row {index} column answer has no final #### number", _REMEDY)
        question = record["question"].strip()
        rows.append(
            PromptRow(
                index=index,
                data_source=DATA_SOURCE,
                messages=[{"role": "user", "content": f"{question} {INSTRUCTION}"}],
                question=question,
                ground_truth=answer,
                solution=record["answer"].strip(),
                extra={"split": split},
            )
        )
    return rows


def load_file(path: str | os.PathLike[str], split: str) -> list[PromptRow]:
    """Convert a local GSM8K parquet or jsonl file.

    Raises:
        DataError: the file is missing, corrupt or not GSM8K.
    """
    return convert_records(read_records(path), split, str(path))


def load_datasets(
    split: str, name: str = "openai/gsm8k", config: str | None = "main"
) -> list[PromptRow]:
    """Load a split through ``datasets``: a hub name, or a local folder of data files.

    Raises:
        DataError: ``datasets`` cannot provide the split (no network, unknown name).
    """
    import datasets  # slow to import, and needed only here

    try:
        if Path(name).is_dir():
            table = datasets.load_dataset(name, split=split)
        else:
            table = datasets.load_dataset(name, config, split=split)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(
            f"datasets cannot load split {split} of {name} ({reason})",
            "Download the file elsewhere and give its path with --file.",
        ) from error
    return convert_records(list(table), split, f"{name}[{split}]")

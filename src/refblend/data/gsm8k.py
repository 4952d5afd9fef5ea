"""The real GSM8K, from a local folder or through ``datasets``, in verl's schema.

Source of the format: https://github.com/openai/grade-school-math (``question``, ``answer`` whose
last line is ``#### <number>``); the instruction appended to each question is taken from verl.
"""

import os
import re
from pathlib import Path
from typing import Any

from refblend.data.schema import PromptRow, read_records
from refblend.errors import DataError, first_line

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


def count_steps(solution: str) -> int:
    """Steps of a solution: its lines before the one with ``####`` (2 to 11 in GSM8K)."""
    return sum(bool(line.strip()) for line in solution.split("####")[0].splitlines())


def convert_records(records: list[dict[str, Any]], split: str, source: str) -> list[PromptRow]:
    """``question``/``answer`` rows as prompt rows, or DataError; ``source`` names the input."""
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
                extra={"split": split, "n_steps": count_steps(record["answer"])},
            )
        )
    return rows


def load_file(path: str | os.PathLike[str], split: str) -> list[PromptRow]:
    """Convert a local GSM8K parquet or jsonl file, or DataError."""
    return convert_records(read_records(path), split, str(path))


def load_split(source: str, split: str) -> list[PromptRow]:
    """The train or test split of a folder (``<split>.jsonl`` or ``.parquet``) or of the hub."""
    if Path(source).is_file():
        raise DataError(
            f"{source} is a file",
            "Name the folder with both splits of GSM8K, or convert the file with "
            "`refblend data convert`.",
        )
    if not Path(source).is_dir():
        return _load_from_hub(source, split)
    for suffix in ("jsonl", "parquet"):
        if (path := Path(source) / f"{split}.{suffix}").is_file():
            return load_file(path, split)
    raise DataError(
        f"{source} has neither {split}.jsonl nor {split}.parquet",
        "Name a folder that holds both splits of GSM8K.",
    )


def _load_from_hub(name: str, split: str) -> list[PromptRow]:
    import datasets  # slow to import, and needed only here

    try:
        table = datasets.load_dataset(name, "main", split=split)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise DataError(
            f"datasets cannot load split {split} of {name} ({first_line(error)})",
            "Download GSM8K elsewhere and name its folder with --source (gsm8k in "
            "params/workflow.yaml).",
        ) from error
    return convert_records(list(table), split, f"{name}[{split}]")

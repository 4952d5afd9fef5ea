"""GSM8K in verl's schema, from a local folder or the hub.

Its format (https://github.com/openai/grade-school-math): ``question``, and ``answer``, whose last
line is ``#### <number>``. The instruction after each question is verl's.
"""

import re
from pathlib import Path
from typing import Any

from refblend.data.schema import PromptRow, read_records
from refblend.errors import DataError, first_line

INSTRUCTION = 'Let\'s think step by step and output the final answer after "####".'
_ANSWER = re.compile(r"####\s*(-?[0-9.,]+)\s*$")
_NUMBER = re.compile(r"-?([0-9]+(\.[0-9]+)?|\.[0-9]+)")
_REMEDY = "Give a GSM8K file with the columns question and answer."


def load_split(source: str | Path, split: str) -> list[PromptRow]:
    """The train or test split of a folder (``<split>.jsonl`` or ``.parquet``) or of the hub.

    DataError names the file or the bad row.
    """
    if not Path(source).exists():
        return _rows(_from_hub(str(source), split), split, f"{source}[{split}]")
    for suffix in ("jsonl", "parquet"):
        if (path := Path(source) / f"{split}.{suffix}").is_file():
            return _rows(read_records(path), split, str(path))
    raise DataError(
        f"{source} has neither {split}.jsonl nor {split}.parquet",
        "Name a folder that holds both splits of GSM8K.",
    )


def _from_hub(name: str, split: str) -> list[dict[str, Any]]:
    import datasets  # slow to import, and needed only here

    try:
        return list(datasets.load_dataset(name, "main", split=split))
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise DataError(
            f"datasets cannot load split {split} of {name} ({first_line(error)})",
            "Download GSM8K elsewhere and name its folder with --source (gsm8k in "
            "params/workflow.yaml).",
        ) from error


def _rows(records: list[dict[str, Any]], split: str, source: str) -> list[PromptRow]:
    rows = []
    for index, record in enumerate(records):
        for column in ("question", "answer"):
            value = record.get(column)
            if not isinstance(value, str) or not value.strip():
                raise DataError(f"{source} row {index} has no text in column {column}", _REMEDY)
        question, solution = record["question"].strip(), record["answer"].strip()
        found = _ANSWER.search(solution)
        answer = found[1].replace(",", "").rstrip(".") if found else ""
        if not _NUMBER.fullmatch(answer):
            raise DataError(f"{source} row {index} column answer has no final #### number", _REMEDY)
        prompt = {"role": "user", "content": f"{question} {INSTRUCTION}"}
        # Steps are the lines before the one with the answer: 2 to 11 in GSM8K.
        steps = sum(bool(line.strip()) for line in solution.split("####")[0].splitlines())
        extra = {"split": split, "n_steps": steps}
        rows.append(PromptRow(index, "openai/gsm8k", [prompt], question, answer, solution, extra))
    return rows

r"""MATH (Hendrycks et al., 2021, https://arxiv.org/abs/2103.03874) from local files.

Its format: a JSON object per problem with ``problem``, ``level``, ``type`` and ``solution``, whose
final answer is in the last ``\boxed{}``; in files ``<split>/<subject>/<n>.json``, or together in
``<split>.jsonl`` or ``.parquet``. The instruction is taken from verl.
"""

import os
import re
from pathlib import Path
from typing import Any

from refblend.data.schema import PromptRow, read_records
from refblend.errors import DataError
from refblend.files import read_record

DATA_SOURCE = "DigitalLearningGmbH/MATH-lighteval"
"""verl's name of the data set."""
INSTRUCTION = r"Let's think step by step and output the final answer within \boxed{}."
_BOX = re.compile(r"\\(?:boxed|fbox)(?![a-z])")
_REMEDY = "Give MATH's own files, with problem and solution."


def extract_boxed(text: str) -> str | None:
    r"""The content of the last ``\boxed{…}`` or ``\boxed …``; None without a complete one.

    >>> extract_boxed(r"thus $x=\boxed{\frac{1}{2}}$.")
    '\\frac{1}{2}'
    """
    found = list(_BOX.finditer(text))
    if not found:
        return None
    rest = text[found[-1].end() :].lstrip()
    if not rest.startswith("{"):  # "\boxed 7", as a few solutions write
        return rest.split("$")[0].strip() or None
    depth = 0
    for end, brace in enumerate(rest):
        if end == 0 or rest[end - 1] != "\\":
            depth += (brace == "{") - (brace == "}")
        if depth == 0:
            return rest[1:end].strip() or None
    return None


def convert_records(
    records: list[dict[str, Any]], split: str, sources: list[str]
) -> list[PromptRow]:
    """``problem``/``solution`` records as prompt rows, or DataError; ``sources`` name them."""
    rows = []
    for index, (record, source) in enumerate(zip(records, sources, strict=True)):
        for column in ("problem", "solution"):
            value = record.get(column)
            if not isinstance(value, str) or not value.strip():
                raise DataError(f"{source} has no text in {column}", _REMEDY)
        answer = extract_boxed(record["solution"])
        if answer is None:
            raise DataError(f"{source} has no final \\boxed answer in solution", _REMEDY)
        question = record["problem"].strip()
        rows.append(
            PromptRow(
                index=index,
                data_source=DATA_SOURCE,
                messages=[{"role": "user", "content": f"{question} {INSTRUCTION}"}],
                question=question,
                ground_truth=answer,
                solution=record["solution"].strip(),
                extra={
                    "split": split,
                    "level": str(record.get("level", "")),
                    "subject": str(record.get("type", record.get("subject", ""))),
                },
            )
        )
    return rows


def load_split(folder: str | os.PathLike[str], split: str) -> list[PromptRow]:
    """The train or test split: ``<split>.jsonl``, ``.parquet`` or JSON files in ``<split>``."""
    root = Path(folder)
    for suffix in ("jsonl", "parquet"):
        if (path := root / f"{split}.{suffix}").is_file():
            records = read_records(path)
            return convert_records(records, split, [f"{path} row {i}" for i in range(len(records))])
    files = sorted(
        (root / split).rglob("*.json"), key=lambda path: (path.parent, len(path.name), path)
    )
    if not files:
        raise DataError(
            f"{root} has neither {split}.jsonl nor {split}.parquet nor JSON files in {split}/",
            "Name a folder that holds both splits of MATH.",
        )
    records = [read_record(path, DataError, _REMEDY) for path in files]
    return convert_records(records, split, list(map(str, files)))

r"""GSM8K and MATH, problems with worked solutions, in verl's schema.

GSM8K (https://github.com/openai/grade-school-math): ``question``, and ``answer``, whose last line
is ``#### <number>``. MATH (Hendrycks et al., 2021, https://arxiv.org/abs/2103.03874): ``problem``,
``level``, ``type`` and ``solution``, whose final answer is in the last ``\boxed{}``. A folder has
``<split>.jsonl``, ``<split>.parquet``, or a JSON file per problem below ``<split>/``; GSM8K may
come from the hub, too. The instructions are verl's.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from refblend.data.schema import PromptRow, read_records
from refblend.errors import DataError, first_line
from refblend.files import read_record

AFTER_MARK = 'Let\'s think step by step and output the final answer after "####".'
_MARKED = re.compile(r"####\s*(-?[0-9.,]+)\s*$")
_NUMBER = re.compile(r"-?([0-9]+(\.[0-9]+)?|\.[0-9]+)")
_BOX = re.compile(r"\\(?:boxed|fbox)(?![a-z])")


@dataclass(frozen=True)
class SolvedSet:
    """A data set whose worked solutions hold the answers."""

    data_source: str
    """verl's name of the data set."""
    problem: str
    """Column of the problem."""
    solution: str
    """Column of the worked solution."""
    instruction: str
    """What the prompt says after the problem."""
    answer_of: Callable[[str], str | None]
    """The answer of a solution, None without one."""
    answer_name: str
    extra_of: Callable[[Mapping[str, Any]], dict[str, Any]]
    """What else is kept of a record."""
    of_hub: str | None = None
    """Configuration of the data set on the hub, if it may come from there."""

    def load_split(self, source: str | Path, split: str) -> list[PromptRow]:
        """The train or test split of a folder or of the hub; DataError names the bad row."""
        root = Path(source)
        if self.of_hub is not None and not root.exists():
            records = _from_hub(str(source), self.of_hub, split)
            return self._rows(records, split, f"{source}[{split}] row")
        for file in (root / f"{split}.jsonl", root / f"{split}.parquet"):
            if file.is_file():
                return self._rows(read_records(file), split, f"{file} row")
        files = sorted((root / split).rglob("*.json"), key=lambda p: (p.parent, len(p.name), p))
        if not files:
            raise DataError(
                f"{root} has neither {split}.jsonl nor {split}.parquet nor JSON files in {split}/",
                "Name a folder that holds both splits.",
            )
        return self._rows([read_record(f, DataError, self._remedy) for f in files], split, files)

    @property
    def _remedy(self) -> str:
        return f"Give files with the columns {self.problem} and {self.solution}."

    def _rows(
        self, records: list[dict[str, Any]], split: str, source: str | Sequence[Path]
    ) -> list[PromptRow]:
        rows = []
        for index, record in enumerate(records):
            where = f"{source} {index}" if isinstance(source, str) else source[index]
            for column in (self.problem, self.solution):
                value = record.get(column)
                if not isinstance(value, str) or not value.strip():
                    raise DataError(f"{where} has no text in column {column}", self._remedy)
            question, solution = record[self.problem].strip(), record[self.solution].strip()
            answer = self.answer_of(solution)
            if answer is None:
                told = f"{where} column {self.solution} has no final {self.answer_name}"
                raise DataError(told, self._remedy)
            prompt = {"role": "user", "content": f"{question} {self.instruction}"}
            extra = {"split": split} | self.extra_of(record)
            rows.append(
                PromptRow(index, self.data_source, [prompt], question, answer, solution, extra)
            )
        return rows


def _from_hub(name: str, configuration: str, split: str) -> list[dict[str, Any]]:
    import datasets  # slow to import, and needed only here

    try:
        return list(datasets.load_dataset(name, configuration, split=split))
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise DataError(
            f"datasets cannot load split {split} of {name} ({first_line(error)})",
            "Download GSM8K elsewhere and name its folder with --source (gsm8k in "
            "params/workflow.yaml).",
        ) from error


def _marked_number(solution: str) -> str | None:
    """The number after the last ``####``, without thousands separators; None if there is none."""
    found = _MARKED.search(solution)
    answer = found.group(1).replace(",", "").rstrip(".") if found else ""
    return answer if _NUMBER.fullmatch(answer) else None


def _steps(record: Mapping[str, Any]) -> dict[str, Any]:
    """Steps of a solution: its lines before the one with ``####`` (2 to 11 in GSM8K)."""
    lines = record["answer"].split("####")[0].splitlines()
    return {"n_steps": sum(bool(line.strip()) for line in lines)}


def _level(record: Mapping[str, Any]) -> dict[str, Any]:
    subject = record.get("type", record.get("subject", ""))
    return {"level": str(record.get("level", "")), "subject": str(subject)}


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


GSM8K = SolvedSet(
    "openai/gsm8k", "question", "answer", AFTER_MARK, _marked_number, "#### number", _steps, "main"
)
MATH = SolvedSet(
    "DigitalLearningGmbH/MATH-lighteval",
    "problem",
    "solution",
    r"Let's think step by step and output the final answer within \boxed{}.",
    extract_boxed,
    r"\boxed answer",
    _level,
)

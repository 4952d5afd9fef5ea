"""Rollouts of any trainer as one table: ``prompt_id, response, reward, judge_score, truth``.

It reads files, and folders of files, from

* refblend: ``rollouts/<step>.jsonl`` of a run, or the run's directory;
* TRL: ``completions/*.parquet`` of ``GRPOConfig(log_completions=True)``;
* verl: ``<step>.jsonl`` in ``trainer.validation_data_dir``; with verl's earlier trainer, which logs
  scores there, also in ``trainer.rollout_data_dir``;
* anything else as jsonl, csv or parquet with these columns.

A file's columns say which it is. Responses to one prompt in one step form a group. Of refblend's
own rollouts the first recorded step is read unless others are asked for.
"""

from dataclasses import dataclass, fields, replace
from pathlib import Path

import pandas as pd

from refblend.data.schema import read_records
from refblend.errors import DataError, first_line

SUFFIXES = (".jsonl", ".parquet", ".csv")


@dataclass(frozen=True)
class Columns:
    """Which column of the rollouts holds what; None: the usual one of the trainer that wrote it."""

    prompt_id: str | None = None
    response: str | None = None
    reward: str | None = None
    judge_score: str | None = None
    truth: str | None = None
    length: str | None = None
    entropy: str | None = None


REFBLEND = Columns("uid", "response", "reward", "judge_score", "acc", "length", "entropy")
VERL = Columns("input", "output", "score", "judge_score", "acc", "response_length", "entropy")
TRL = Columns("prompt", "completion", None, "judge", "truth", "length", "entropy")
PLAIN = Columns(*(field.name for field in fields(Columns)))
_NOT_REWARDS = {"step", "advantage", "judge_score", *filter(None, vars(TRL).values())}
_REQUIRED = ("prompt_id", "reward", "judge_score", "truth")


@dataclass(frozen=True)
class Rollouts:
    """What :func:`read_rollouts` found."""

    frame: pd.DataFrame
    """In the columns of :data:`PLAIN`."""
    own: bool
    """Whether refblend's trainer wrote them, the only one with ``groups: mixed``."""
    steps: str
    """Which steps were read of which; empty if all."""


def read_rollouts(
    path: str | Path, columns: Columns | None = None, steps: tuple[int, int] | None = None
) -> Rollouts:
    """The rollouts of a file, a folder or a run's directory; ``steps``: the first and the last.

    DataError if there are none, or a column is missing.
    """
    files = _files(Path(path))
    frame = pd.concat([_read(file).assign(_file=file.name) for file in files], ignore_index=True)
    own = _usual(frame) == REFBLEND
    read = ""
    if steps or (own and "step" in frame.columns):
        frame, read = _within(frame, steps, str(path))
    return Rollouts(named(frame, columns or Columns(), str(path)), own, read)


def _within(
    frame: pd.DataFrame, steps: tuple[int, int] | None, source: str
) -> tuple[pd.DataFrame, str]:
    """The rows of these steps, or of the first that there is, and what was left out."""
    if "step" not in frame.columns:
        raise DataError(f"{source} has no column 'step'", "Leave out --steps.")
    step = _numbers(frame["step"], f"{source}: step")
    first, last = steps or (step.min(), step.min())
    chosen = step.between(first, last)
    if not chosen.any():
        raise DataError(
            f"{source} has no step from {first} to {last}", f"It has {_span(step)}: name some."
        )
    read = "" if chosen.all() else f"{_span(step[chosen])} of {_span(step)}; --steps reads others"
    return frame[chosen], read


def _span(step: pd.Series) -> str:
    first, last = step.min(), step.max()
    return f"{first:g}" if first == last else f"{first:g} to {last:g}"


def named(frame: pd.DataFrame, wanted: Columns, source: str) -> pd.DataFrame:
    """The frame with the columns of :data:`PLAIN` and ``step``: a file and its step."""
    usual = _usual(frame)
    found: dict[str, pd.Series] = {}
    for field in fields(Columns):
        asked = getattr(wanted, field.name)
        name = asked or getattr(usual, field.name)
        if name in frame.columns:
            found[field.name] = frame[name]
        elif asked or field.name in _REQUIRED:
            problem = f"no column {name!r}" if name else "not exactly one column"
            raise DataError(
                f"{source}: {problem} for {field.name}; there are "
                f"{', '.join(map(str, frame.columns.drop('_file', errors='ignore')))}",
                f"Name it: --column {field.name}=COLUMN.",
            )
    table = pd.DataFrame(found)
    for name in set(table.columns) - {"prompt_id", "response"}:
        table[name] = _numbers(table[name], f"{source}: {name}")
    table["step"] = ""
    for key in ("_file", "step"):
        if key in frame.columns:
            table["step"] += frame[key].astype(str) + "/"
    return table


def _usual(frame: pd.DataFrame) -> Columns:
    columns = set(map(str, frame.columns))
    if {"uid", "sample", "acc"} <= columns:
        return REFBLEND
    if {"input", "output", "score"} <= columns:
        return VERL
    if {"prompt", "completion", "advantage"} <= columns:
        rewards = [
            name
            for name in frame.columns
            if name not in _NOT_REWARDS and pd.api.types.is_numeric_dtype(frame[name])
        ]
        judge = "judge_score" if "judge_score" in columns else TRL.judge_score
        return replace(TRL, judge_score=judge, reward=rewards[0] if len(rewards) == 1 else None)
    return PLAIN


def _numbers(values: pd.Series, what: str) -> pd.Series:
    found = pd.to_numeric(values, errors="coerce")
    bad = values[found.isna() & values.notna()]
    if len(bad):
        raise DataError(
            f"{what} of row {bad.index[0]} is {bad.iloc[0]!r}, which is no number",
            "Correct it, or leave the cell empty.",
        )
    return found.astype(float)


def _files(path: Path) -> list[Path]:
    if path.is_file() and path.suffix in SUFFIXES:
        return [path]
    for folder in (path / "rollouts", path / "completions", path):
        files = sorted(file for file in folder.glob("*") if file.suffix in SUFFIXES)
        if files:
            return files
    raise DataError(
        f"{path} holds no rollouts ({', '.join(SUFFIXES)})",
        "Name a file, a folder of them, or the directory of a run.",
    )


def _read(path: Path) -> pd.DataFrame:
    if path.suffix != ".csv":
        return pd.DataFrame(read_records(path))
    try:
        return pd.read_csv(path)
    except ValueError as error:
        raise DataError(f"{path} is no CSV table ({first_line(error)})", "Correct it.") from None

"""From run directories to tidy frames; a run that failed or is missing is a row, never a gap.

Frames:

- ``runs``: one row per run of the grid, with its status, times, energy and origin.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from refblend.data.schema import PARQUET_ERRORS
from refblend.documents import MalformedError, parse_json, shorten, show
from refblend.errors import DataError, StudyError
from refblend.files import atomic_path, read_object
from refblend.study.design.grid import unique_runs
from refblend.study.layout import COLLECTED, run_dir
from refblend.trainer.tracking import read_metrics

RUN_COLUMNS = {
    "arm": "str",
    "seed": "int64",
    "status": "str",
    "reason": "str",
    "steps": "Int64",
    "wall_time_s": "float64",
    "energy_kwh": "float64",
    "kg_co2e": "float64",
    "resumed": "Int64",
    "commit": "str",
    "dirty": "boolean",
    "hardware": "str",
}
METRIC_COLUMNS = {
    "arm": "str",
    "seed": "int64",
    "step": "int64",
    "metric": "str",
    "value": "float64",
}
RESPONSE_COLUMNS = {
    "arm": "str",
    "seed": "int64",
    "step": "int64",
    "reward": "float64",
    "acc": "float64",
    "judge_score": "float64",
    "judge_valid": "boolean",
    "judge_path": "str",
    "length": "float64",
}
RESPONSE_NUMBERS = ("reward", "acc", "judge_score", "length")
STATUSES = ("finished", "stopped", "failed", "incomplete", "missing")
"""``stopped``: ended early by a guard; ``incomplete``: killed, resumed by the next call."""


@dataclass(frozen=True)
class Collected:
    """The frames of a milestone."""

    runs: pd.DataFrame
    metrics: pd.DataFrame
    responses: pd.DataFrame

    @property
    def finished(self) -> pd.DataFrame:
        """Rows of ``runs`` whose results count."""
        return self.runs[self.runs.status == "finished"]

    @property
    def counted_metrics(self) -> pd.DataFrame:
        """Metrics of finished runs only."""
        return self.metrics.merge(self.finished[["arm", "seed"]], on=["arm", "seed"])


def collect(grid: pd.DataFrame, scale: str, root: str | Path = "runs") -> Collected:
    """Read every run of a grid.

    Args:
        grid: as :func:`refblend.study.design.grid.read_grid` gives it.
        scale: folder below ``root``.
        root: folder of all runs.
    """
    runs, metrics, responses = [], [], []
    for row in unique_runs(grid).itertuples():
        directory = run_dir(scale, row.arm, row.seed, root)
        identity = {"arm": row.arm, "seed": int(row.seed)}
        record, values, rows = _read_run(directory)
        runs.append(identity | record)
        if values is not None and len(values):
            metrics.append(_long(values).assign(**identity))
        responses += [identity | item for item in rows]
    return Collected(
        _typed(pd.DataFrame(runs), RUN_COLUMNS),
        _typed(pd.concat(metrics) if metrics else pd.DataFrame(), METRIC_COLUMNS),
        _typed(pd.DataFrame(responses), RESPONSE_COLUMNS),
    )


def write_collected(collected: Collected, out: str | Path) -> None:
    """Write the three frames below ``out``, each atomically."""
    out = Path(out)
    frames = (collected.runs, collected.metrics, collected.responses)
    for name, frame in zip(COLLECTED, frames, strict=True):
        with atomic_path(out / name) as temporary:
            if name.endswith(".csv"):
                frame.to_csv(temporary, index=False)
            else:
                frame.to_parquet(temporary, index=False)


def read_collected(folder: str | Path) -> Collected:
    """Read what :func:`write_collected` wrote.

    Raises:
        StudyError: a file is missing or unreadable.
    """
    folder = Path(folder)
    try:
        runs = pd.read_csv(folder / COLLECTED[0], keep_default_na=False, na_values=[""])
        metrics = pd.read_parquet(folder / COLLECTED[1])
        responses = pd.read_parquet(folder / COLLECTED[2])
        frames = ((runs, RUN_COLUMNS), (metrics, METRIC_COLUMNS), (responses, RESPONSE_COLUMNS))
        for (frame, columns), name in zip(frames, COLLECTED, strict=True):
            if list(frame.columns) != list(columns):
                raise ValueError(f"{name} has other columns")
        runs["reason"] = runs["reason"].fillna("")
        return Collected(*(_typed(frame, columns) for frame, columns in frames))
    except (OSError, TypeError, *PARQUET_ERRORS) as error:
        raise StudyError(
            f"{folder}: collected frames cannot be read ({shorten(str(error), 300)})",
            "Run `refblend study collect`.",
        ) from None


def _typed(frame: pd.DataFrame, columns: dict[str, str]) -> pd.DataFrame:
    """Exactly the declared columns, in order and with their types."""
    frame = frame.reindex(columns=list(columns))
    return frame.astype(columns).reset_index(drop=True)


def _long(values: pd.DataFrame) -> pd.DataFrame:
    """Wide metrics (one row per step) → one row per (step, metric), without missing values."""
    long = values.melt(id_vars="step", var_name="metric", value_name="value")
    return long.dropna(subset="value").sort_values(["step", "metric"], ignore_index=True)


def _read_run(
    directory: Path,
) -> tuple[dict[str, Any], pd.DataFrame | None, list[dict[str, Any]]]:
    """Record, metrics and responses of one run; problems become the record's status and reason."""
    record: dict[str, Any] = {"status": "missing", "reason": "no run directory"}
    if not directory.is_dir():
        return record, None, []
    values = None
    responses: list[dict[str, Any]] = []
    try:
        if (directory / "metrics.jsonl").exists():
            values = read_metrics(directory / "metrics.jsonl")
            record |= {
                "status": "incomplete",
                "reason": "killed before its end",
                "steps": int(values["step"].max()) if len(values) else 0,
            }
        else:
            record["reason"] = "no metrics"
        provenance = _read_object(directory / "provenance.json")
        record |= _origin(provenance)
        summary = _read_object(directory / "summary.json")
        if summary:
            record |= _outcome(summary)
            if record["status"] == "finished" and (values is None or values.empty):
                record |= {"status": "failed", "reason": "summary without metrics"}
        if record["status"] == "finished" and values is not None:
            values = _with_test(values, _read_object(directory / "test.json"))
        responses = _read_responses(directory)
    except (DataError, OSError, ValueError, KeyError, TypeError) as error:
        record |= {"status": "failed", "reason": f"unreadable: {shorten(str(error), 300)}"}
    return record, values, responses


def _read_object(path: Path) -> dict[str, Any]:
    """A JSON object, empty when the file does not exist."""
    try:
        return read_object(path) if path.exists() else {}
    except MalformedError as error:
        raise ValueError(f"{path.name}: {error}") from None


def _part(record: dict[str, Any], key: str) -> dict[str, Any]:
    """An object within a record; empty when it is absent or null."""
    value = record.get(key)
    if value is not None and not isinstance(value, dict):
        raise ValueError(f"{key} is {show(value)}, not an object")
    return value or {}


def _number(record: dict[str, Any], key: str) -> Any:
    """A finite number, or None where it is absent or null."""
    value = record.get(key)
    if value is None or (type(value) in (int, float) and abs(value) < 2**63):  # not NaN either
        return value
    raise ValueError(f"{key} is {show(value)}, not a number")


def _truth(record: dict[str, Any], key: str) -> bool | None:
    """A boolean, or None if it is absent or null."""
    value = record.get(key)
    if value is None or isinstance(value, bool):
        return value
    raise ValueError(f"{key} is {show(value)}, neither true nor false")


def _outcome(summary: dict[str, Any]) -> dict[str, Any]:
    """Status and reason from summary.json; without a status the run finished."""
    status = str(summary.get("status", "finished"))
    if status in ("completed", "ok", "done"):
        status = "finished"
    if status not in STATUSES:
        return {"status": "failed", "reason": f"unknown status {show(status)}"}
    return {"status": status, "reason": str(summary.get("reason") or "")}


def _origin(provenance: dict[str, Any]) -> dict[str, Any]:
    """Where a run comes from and what it used, from provenance.json."""
    totals, git, machine = (_part(provenance, key) for key in ("totals", "git", "hardware"))
    gpus = machine.get("gpus") or []
    parts = [
        str(machine.get("cpu") or ""),
        f"{machine['cores']} cores" if machine.get("cores") else "",
        ", ".join(gpus),
    ]
    return {
        "wall_time_s": _number(totals, "wall_time_s"),
        "energy_kwh": _number(totals, "energy_kwh_estimated"),
        "kg_co2e": _number(totals, "kg_co2e_estimated"),
        "resumed": max(0, len(provenance.get("sessions", [])) - 1) if provenance else None,
        "commit": str(git.get("commit") or ""),
        "dirty": _truth(git, "dirty"),
        "hardware": ", ".join(part for part in parts if part),
    }


def _with_test(values: pd.DataFrame, report: dict[str, Any]) -> pd.DataFrame:
    """Add the numbers of the test evaluation, if any, as ``test/<measure>`` to the last step."""
    if not report:
        return values
    numbers = {
        f"test/{name}": float(_number(report, name))
        for name, value in report.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    added = pd.DataFrame(numbers, index=[values.index[values["step"].argmax()]])
    return values.join(added)


def _read_responses(directory: Path) -> list[dict[str, Any]]:
    """Rows of ``rollouts/*.jsonl`` without the texts and without an incomplete last line.

    Raises:
        ValueError: another line is not a record, or a value has the wrong type; names file and
            line.
    """
    rows = []
    for path in sorted(directory.glob("rollouts/*.jsonl")):
        # Not splitlines(): a response may hold other line separators, such as U+2028.
        *lines, _torn = path.read_bytes().split(b"\n")
        for number, line in enumerate(lines, start=1):
            try:
                rows.append(_response(parse_json(line)))
            except ValueError as error:
                raise ValueError(f"{path.name}, line {number}: {error}") from None
    return rows


def _response(record: Any) -> dict[str, Any]:
    """The wanted part of a response's record, checked."""
    if not isinstance(record, dict):
        raise ValueError("not a JSON object")
    if type(record.get("step")) is not int:
        raise ValueError("no step")
    read: dict[str, Any] = {"step": _number(record, "step")}
    for name in RESPONSE_NUMBERS:
        read[name] = _number(record, name)
    read["judge_valid"] = _truth(record, "judge_valid")
    judge_path = record.get("judge_path")
    if judge_path is not None and not isinstance(judge_path, str):
        raise ValueError(f"judge_path is {show(judge_path)}, not text")
    return read | {"judge_path": judge_path}

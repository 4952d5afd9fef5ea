"""Metrics of a run: the canonical ``metrics.jsonl``.

One JSON object per line: ``step`` first, then the metrics sorted by name, floats in their shortest
exact form, ``null`` for what is not finite. Two runs that compute the same numbers write the same
bytes, those of :data:`TIMING_PREFIXES` aside.
"""

import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any

import pandas as pd

from refblend.documents import parse_json, shorten, show
from refblend.errors import DataError
from refblend.files import atomic_path

TIMING_PREFIXES = ("timing_s/", "timing_per_token_ms/", "perf/", "energy/")
"""Metrics that depend on the machine and the time, not on the computation."""


class Tracker:
    """Shows a run somewhere and changes nothing; a tracker overrides what it can show."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Show the metrics of one step."""

    def rollouts(self, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Show some rollouts of a step; its keys are :data:`refblend.trainer.trackers.COLUMNS`."""

    def close(self, failed: bool = False) -> None:
        """Flush and release; ``failed`` says whether the run has."""


def encode_line(step: int, metrics: Mapping[str, float]) -> str:
    """One line of ``metrics.jsonl``, without the newline."""
    record: dict[str, int | float | None] = {"step": step}
    for name in sorted(metrics):
        value = metrics[name]
        if name == "step":
            raise ValueError("'step' is reserved: a metric cannot have this name")
        # NumPy and torch scalars become Python's own; integers and booleans become integers.
        number = int(value) if isinstance(value, Integral) else float(value)
        record[name] = number if math.isfinite(number) else None
    return json.dumps(record, allow_nan=False)


class MetricsLog:
    """Appends to ``metrics.jsonl``, each line fsynced; drops an incomplete last line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.last_step = self.truncate_after(None)

    def append(self, step: int, metrics: Mapping[str, float]) -> list[str]:
        """Write the line of a later step (else ValueError); the names of metrics now null."""
        if self.last_step is not None and step <= self.last_step:
            raise ValueError(f"step {step} after step {self.last_step} in {self.path}")
        self._write(step, encode_line(step, metrics))
        return sorted(name for name, value in metrics.items() if not math.isfinite(value))

    def complete(self, step: int, line: str) -> None:
        """Write the ``line`` of a checkpoint's ``step`` if a stop came between the two."""
        if (self.last_step or 0) == step - 1:
            self._write(step, line)

    def _write(self, step: int, line: str) -> None:
        with open(self.path, "ab") as stream:
            stream.write(line.encode() + b"\n")
            stream.flush()
            os.fsync(stream.fileno())
        self.last_step = step

    def truncate_after(self, step: int | None) -> int | None:
        """Drop the lines of later steps (None: an incomplete one); return the last step left."""
        if not self.path.exists():
            return None
        content = self.path.read_bytes()
        lines = _whole_lines(self.path, content)
        kept = [line for line in lines if step is None or line[1]["step"] <= step]
        new = b"".join(raw for raw, _ in kept)
        if new != content:
            with atomic_path(self.path) as temporary:
                temporary.write_bytes(new)
        self.last_step = kept[-1][1]["step"] if kept else None
        return self.last_step


def read_metrics(path: Path) -> pd.DataFrame:
    """The metrics of a run, one row per step, NaN for what is null or missing; or DataError."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(
            f"{path} cannot be read ({error.strerror})", "Train the run first, or fix its path."
        ) from error
    records = [record for _, record in _whole_lines(path, content)]
    names = sorted({name for record in records for name in record} - {"step"})
    frame = pd.DataFrame(records, columns=["step", *names])
    return frame.astype({"step": "int64"} | dict.fromkeys(names, "float64"))


def _whole_lines(path: Path, content: bytes) -> list[tuple[bytes, dict[str, Any]]]:
    """Raw bytes and record of each line, checked; a last line without a newline is dropped."""
    lines: list[tuple[bytes, dict[str, Any]]] = []
    *whole, _torn = content.split(b"\n")
    for number, raw in enumerate(whole, start=1):
        try:
            record = _checked(parse_json(raw))
            if lines and record["step"] <= lines[-1][1]["step"]:
                raise ValueError(f"step {record['step']} follows step {lines[-1][1]['step']}")
        except ValueError as error:
            raise DataError(
                f"{path}, line {number} is not a metrics record ({shorten(str(error))})",
                "Remove the run directory and train again, or restore the file.",
            ) from error
        lines.append((raw + b"\n", record))
    return lines


def _checked(record: Any) -> dict[str, Any]:
    """The record, checked to be one that :func:`encode_line` can have written."""
    if not isinstance(record, dict) or "step" not in record:
        raise ValueError("not an object with a step")
    step = record["step"]
    if type(step) is not int or not 0 <= step < 2**63:
        raise ValueError(f"the step is {show(step)}")
    for name, value in record.items():
        number = type(value) in (int, float) and abs(value) <= sys.float_info.max  # not NaN either
        if not (number or value is None):
            raise ValueError(f"{shorten(name)} is {show(value)}, neither a finite number nor null")
    return record

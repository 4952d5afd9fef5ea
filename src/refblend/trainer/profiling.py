"""The profile of a step: Chrome traces of stages and actor's operators, and both as tables."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pandas as pd

from refblend.files import write_text
from refblend.trainer.step_metrics import Span
from refblend.workers.roles import ACTOR
from refblend.workers.worker_set import WorkerSet

OPERATORS = 15
"""Rows of the operator table."""


@contextmanager
def profiled(workers: WorkerSet, folder: Path, spans: Sequence[Span]) -> Iterator[None]:
    """Profile the block: the actor's operators, and the ``spans`` that it has when it ends."""
    workers.call(ACTOR, "start_profile")
    yield
    operators = workers.call(ACTOR, "stop_profile", str(folder.absolute() / "actor.json"))
    write_profile(folder, spans, operators)
    workers.notify(f"profile: {folder}")


def chrome_trace(spans: Sequence[Span]) -> dict[str, object]:
    """Stages as complete events of the Trace Event Format; times in microseconds from the first."""
    begin = min((span.start for span in spans), default=0.0)
    events = [
        {
            "name": span.name,
            "ph": "X",
            "ts": (span.start - begin) * 1e6,
            "dur": span.seconds * 1e6,
            "pid": "driver",
            "tid": span.name,
        }
        for span in sorted(spans, key=lambda span: span.start)
    ]
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def write_profile(
    folder: Path, spans: Sequence[Span], operators: Sequence[tuple[str, int, float]]
) -> None:
    """Write stages and operators (name, calls, own seconds), the longest first."""
    write_text(folder / "stages.json", json.dumps(chrome_trace(spans)))
    whole = max((span.seconds for span in spans if span.name == "step"), default=0.0)
    in_order = sorted(spans, key=lambda span: span.start)
    stages = [(s.name, s.seconds, s.seconds / whole if whole else 0.0) for s in in_order]
    total = sum(seconds for _, _, seconds in operators)
    rows = [(*row, row[2] / total if total else 0.0) for row in operators[:OPERATORS]]

    def table(rows: Sequence[tuple[object, ...]], *columns: str) -> str:
        return pd.DataFrame(rows, columns=columns).to_markdown(index=False, floatfmt=".4f")

    text = [
        "Stages (side by side ones overlap):",
        table(stages, "stage", "seconds", "share of the step"),
        f"Operators of the actor by their own time, the first {OPERATORS}:",
        table(rows, "operator", "calls", "seconds", "share of the actor"),
    ]
    write_text(folder / "summary.md", "\n\n".join(text) + "\n")

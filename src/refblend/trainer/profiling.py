"""The profile of a step: its stages over time, and the actor's operators.

``profile/step_N/stages.json`` and ``actor.json`` are Chrome traces (chrome://tracing, Perfetto) of
the driver's stages and of the actor's operators; ``summary.md`` holds both as tables.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from refblend.files import write_text
from refblend.trainer.step_record import Span

OPERATORS = 15
"""Rows of the operator table."""


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
    """Write the stages' trace and the tables.

    Args:
        folder: for this step.
        spans: the stages, including ``step``.
        operators: the actor's, with calls and own seconds, longest first.
    """
    write_text(folder / "stages.json", json.dumps(chrome_trace(spans)))
    whole = max((span.seconds for span in spans if span.name == "step"), default=0.0)
    stages = pd.DataFrame(
        [
            (span.name, span.seconds, span.seconds / whole if whole else 0.0)
            for span in sorted(spans, key=lambda span: span.start)
        ],
        columns=["stage", "seconds", "share of the step"],
    )
    total = sum(seconds for _, _, seconds in operators)
    rows = [(*row, row[2] / total if total else 0.0) for row in operators[:OPERATORS]]
    columns = ["operator", "calls", "seconds", "share of the actor"]
    text = [
        "Stages (side by side ones overlap):",
        stages.to_markdown(index=False, floatfmt=".4f"),
        f"Operators of the actor by their own time, the first {OPERATORS}:",
        pd.DataFrame(rows, columns=columns).to_markdown(index=False, floatfmt=".4f"),
    ]
    write_text(folder / "summary.md", "\n\n".join(text) + "\n")

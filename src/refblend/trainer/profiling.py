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


def write_profile(folder: Path, spans: Sequence[Span], operators: str) -> None:
    """Write the stages, and torch's table of operators."""
    write_text(folder / "stages.json", json.dumps(chrome_trace(spans)))
    whole = max((span.seconds for span in spans if span.name == "step"), default=0.0)
    in_order = sorted(spans, key=lambda span: span.start)
    rows = [(s.name, s.seconds, s.seconds / whole if whole else 0.0) for s in in_order]
    stages = pd.DataFrame(rows, columns=["stage", "seconds", "share of the step"])
    text = [
        "Stages (side by side ones overlap):",
        stages.to_markdown(index=False, floatfmt=".4f"),
        "Operators of the actor, those with the most time of their own:",
        f"```\n{operators}\n```",
    ]
    write_text(folder / "summary.md", "\n\n".join(text) + "\n")

"""Trackers that need nothing else installed: the console and TensorBoard."""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from refblend.trainer.console import TrainingProgress
from refblend.trainer.trackers.base import Tracker, TrackerContext, finite


class ConsoleTracker(Tracker):
    """The progress line of :mod:`refblend.trainer.console`."""

    def __init__(self, context: TrackerContext) -> None:
        self.progress = TrainingProgress(context.total_steps, context.label, context.start_step)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Show the step."""
        self.progress.log(step, metrics)

    def close(self, failed: bool = False) -> None:
        """Leave the last line on screen."""
        self.progress.close()


class TensorBoardTracker(Tracker):
    """Writes to ``<run>/tensorboard``; after a resume, later points are discarded."""

    def __init__(self, context: TrackerContext) -> None:
        from torch.utils.tensorboard import SummaryWriter

        threading.excepthook = _report
        purge = context.start_step + 1 if context.start_step else None
        self._writer = SummaryWriter(str(context.run_dir / "tensorboard"), purge_step=purge)
        self._total = context.total_steps
        self._writer.add_text("config", _as_code(context.settings), context.start_step)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add one point to every curve; values that are not finite are left out."""
        for name, value in finite(metrics).items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def rollouts(self, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """As text."""
        self._writer.add_text("rollouts", _as_code(rows), step)

    def finish(self, summary: Mapping[str, Any], figure: Callable[[], Path]) -> None:
        """As text; the curves are there already."""
        self._writer.add_text("summary", _as_code(summary), self._total)

    def close(self, failed: bool = False) -> None:
        """Flush and close the event file."""
        self._writer.close()


def _as_code(value: Any) -> str:
    """JSON as Markdown shows it unchanged."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    return "\n".join(f"    {line}" for line in text.splitlines())


def _report(arguments: threading.ExceptHookArgs) -> None:
    """Print errors of threads, but not of TensorBoard's: its next write raises the same."""
    if type(arguments.thread).__name__ != "_AsyncWriterThread":
        threading.__excepthook__(arguments)

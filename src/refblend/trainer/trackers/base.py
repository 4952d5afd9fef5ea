"""What every tracker has: the run it shows, and the calls that it may override."""

import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from refblend.files import read_object, write_json

COLUMNS = (
    "question", "response", "ground_truth", "reward", "judge_score", "judge_raw", "weight",
    "blended",
)  # fmt: skip
"""Columns of that table."""


@dataclass(frozen=True)
class TrackerContext:
    """What a tracker may need to know about its run."""

    run_dir: Path
    total_steps: int
    start_step: int = 0
    label: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The resolved configuration."""

    @property
    def project(self) -> str:
        """``trainer.project_name``."""
        return str(self.settings["trainer"]["project_name"])

    @property
    def experiment(self) -> str:
        """``trainer.experiment_name``; the run's own label if there is none."""
        return self.settings["trainer"]["experiment_name"] or self.label or self.run_dir.name

    def identity(self, tracker: str, new: Callable[[], str] = lambda: uuid.uuid4().hex) -> str:
        """The run's name at a tracker, kept in its directory so that a resumed run goes on there.

        Args:
            tracker: its name.
            new: makes one for a run that has none yet.
        """
        path = self.run_dir / "trackers.json"
        known: dict[str, Any] = read_object(path) if path.exists() else {}
        if tracker not in known:
            known[tracker] = new()
            write_json(path, known)
        return str(known[tracker])


class Tracker:
    """Shows a run somewhere and changes nothing; a tracker overrides what it can show."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Show the metrics of one step."""

    def rollouts(self, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Show some rollouts of a step; the keys are :data:`COLUMNS`."""

    def finish(self, summary: Mapping[str, Any], figure: Callable[[], Path]) -> None:
        """Show how the run ended; ``figure`` draws it, to a PNG file."""

    def close(self, failed: bool = False) -> None:
        """Flush and release; may be called twice."""


def finite(metrics: Mapping[str, float]) -> dict[str, float]:
    """The metrics that are finite numbers."""
    return {name: value for name, value in metrics.items() if math.isfinite(value)}

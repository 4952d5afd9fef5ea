"""Where the metrics of a run are shown: the trackers that ``trainer.logger`` names.

All are views of ``metrics.jsonl``, which is written whatever the list says. Besides the metrics
they get the configuration, a table of rollouts for each step that dumps them, and at the end the
summary; wandb, mlflow and swanlab also a figure of the run.
"""

import importlib.util
import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from refblend.errors import ConfigError
from refblend.files import atomic_path
from refblend.trainer.trackers.base import COLUMNS, Tracker, TrackerContext
from refblend.trainer.trackers.local import ConsoleTracker, TensorBoardTracker
from refblend.trainer.trackers.services import MlflowTracker, SwanlabTracker, WandbTracker
from refblend.trainer.tracking import read_metrics

__all__ = ["COLUMNS", "TRACKERS", "Tracker", "TrackerContext", "Trackers", "check_trackers"]

PACKAGES = {"wandb": "wandb", "mlflow": "mlflow", "swanlab": "swanlab"}
"""Tracker → package that it needs and that refblend does not bring."""
ROWS_SHOWN = 16
"""Rollouts of a step in a table; ``rollouts/`` has all of them."""
PANELS = {
    "reward": ("critic/score/mean", "critic/acc/mean"),
    "judge": ("actor/ref_quality/score_mean", "actor/ref_quality/auc"),
    "blend": ("actor/ref_quality/weight", "actor/ref_quality/avg_entropy"),
    "response tokens": ("response_length/mean",),
}
"""Panels of the run's figure, and the metrics that each shows."""


def draw_run(run_dir: Path) -> Path:
    """``<run>/run.png``: the run's metrics over its steps, one panel for each of :data:`PANELS`."""
    from matplotlib.figure import Figure

    frame = read_metrics(run_dir / "metrics.jsonl")
    figure = Figure(figsize=(9, 6), layout="constrained")
    for axes, (title, names) in zip(figure.subplots(2, 2).flat, PANELS.items(), strict=True):
        for name in names:
            if name in frame:
                shown = frame[["step", name]].dropna()
                axes.plot(shown["step"], shown[name], label=name)
        axes.set(title=title, xlabel="step")
        if axes.lines:
            axes.legend(fontsize="small")
    with atomic_path(run_dir / "run.png") as temporary:
        figure.savefig(temporary, format="png", dpi=120)
    return run_dir / "run.png"


TRACKERS: dict[str, Callable[[TrackerContext], Tracker]] = {
    "console": ConsoleTracker,
    "tensorboard": TensorBoardTracker,
    "wandb": WandbTracker,
    "mlflow": MlflowTracker,
    "swanlab": SwanlabTracker,
    "jsonl": lambda context: Tracker(),  # metrics.jsonl, which every run writes
}
"""Trackers by the names that ``trainer.logger`` accepts; a user may add their own."""


def check_trackers(names: Iterable[str]) -> None:
    """Refuse what cannot be started.

    Raises:
        ConfigError: a name is not in :data:`TRACKERS`, or its package is not installed.
    """
    for name in names:
        if name not in TRACKERS:
            raise ConfigError(
                f"trainer.logger names the unknown tracker {name!r}",
                f"Use any of {', '.join(sorted(TRACKERS))}.",
            )
        if name in PACKAGES and importlib.util.find_spec(name) is None:
            raise ConfigError(
                f"trainer.logger names {name}, which is not installed",
                f"Run: pip install {PACKAGES[name]}",
            )


class Trackers:
    """The trackers named by ``trainer.logger``, used as one; a context manager.

    Raises:
        ConfigError: see :func:`check_trackers`.
    """

    def __init__(self, names: Iterable[str], context: TrackerContext) -> None:
        names = list(dict.fromkeys(names))
        check_trackers(names)
        self._run_dir = context.run_dir
        self._trackers = [TRACKERS[name](context) for name in names]

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Show the metrics of one step everywhere, and its rollouts if they are dumped."""
        path = self._run_dir / "rollouts" / f"{step}.jsonl"
        rows = []
        if path.exists():
            lines = path.read_text(encoding="utf-8").splitlines()[:ROWS_SHOWN]
            rows = [{name: row[name] for name in COLUMNS} for row in map(json.loads, lines)]
        for tracker in self._trackers:
            tracker.log(step, metrics)
            if rows:
                tracker.rollouts(step, rows)

    def message(self, text: str) -> None:
        """Tell the user something without breaking the live line; nothing without a console."""
        for tracker in self._trackers:
            if isinstance(tracker, ConsoleTracker):
                tracker.progress.message(text)

    def finish(self, summarise: Callable[[], Mapping[str, Any]]) -> None:
        """Show how the run ended; without a tracker there is nothing to summarise."""
        for tracker in self._trackers:
            tracker.finish(summarise(), lambda: draw_run(self._run_dir))

    def close(self, failed: bool = False) -> None:
        """Close every tracker."""
        for tracker in self._trackers:
            tracker.close(failed)

    def __enter__(self) -> "Trackers":
        return self

    def __exit__(self, kind: type[BaseException] | None, *details: object) -> None:
        # A tracker that cannot write its last lines must not hide the reason why the run stopped.
        with suppress(*([OSError] if kind else [])):
            self.close(failed=kind is not None)

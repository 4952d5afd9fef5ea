"""Trackers of a run's metrics, as named by ``trainer.logger``: views of ``metrics.jsonl``.

They also get the configuration, and some rollouts of each step that dumps them. Services read
environment variables of their own.
"""

import contextlib
import hashlib
import importlib.util
import json
import logging
import math
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from refblend.documents import flatten, shorten
from refblend.errors import CheckpointError, ConfigError, RefblendError, ResourceError
from refblend.files import read_record, write_json
from refblend.lifecycle.faults import explain
from refblend.trainer.console import TrainingProgress
from refblend.trainer.tracking import Tracker

logger = logging.getLogger(__name__)

PACKAGES = ("wandb", "mlflow")
"""Trackers that need the package of their name, which refblend does not bring."""
ROWS_SHOWN = 16
"""Rollouts of a step in a table; ``rollouts/`` has all of them."""
COLUMNS = ["question", "response", "ground_truth", "reward"]
COLUMNS += ["judge_score", "judge_raw", "weight", "blended"]
"""Columns of the table of rollouts."""


@dataclass(frozen=True)
class TrackerContext:
    """What trackers know about their run."""

    run_dir: Path
    total_steps: int
    start_step: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The resolved configuration."""

    @property
    def label(self) -> str:
        """The last two folders of the run's directory."""
        return f"{self.run_dir.parent.name}/{self.run_dir.name}"

    @property
    def project(self) -> str:
        """``trainer.project_name``."""
        return str(self.settings["trainer"]["project_name"])

    @property
    def experiment(self) -> str:
        """``trainer.experiment_name``; the run's own label if there is none."""
        return self.settings["trainer"]["experiment_name"] or self.label

    def identity(self, tracker: str, new: Callable[[], str] = lambda: uuid.uuid4().hex) -> str:
        """The run's name at a tracker, made by ``new`` and kept for resumed runs."""
        path = self.run_dir / "trackers.json"
        known: dict[str, Any] = {}
        if path.exists():
            remedy = "Remove it: every tracker then begins a new run."
            known = read_record(path, CheckpointError, remedy)
        if tracker not in known:
            known[tracker] = new()
            write_json(path, known)
        return str(known[tracker])


MAX_NAME = 250
"""Characters of a metric's name that every service takes."""
_FOREIGN = re.compile(r"[^\w.\- :@]")


def service_name(name: str, at: str = "@") -> str:
    """A metric's name as every tracking service accepts it; ``at`` replaces ``@``.

    Characters that services refuse become ``_``, and a hash of the name is added.
    """
    plain = name.replace("@", at)
    kept = "/".join(_FOREIGN.sub("_", part).strip(". ") or "_" for part in plain.split("/"))
    ambiguous = at != "@" and at in name
    if kept == plain and not ambiguous and len(plain) <= MAX_NAME:
        return plain
    mark = hashlib.sha256(name.encode()).hexdigest()[:12]
    return f"{kept[: MAX_NAME - len(mark) - 1]}-{mark}"


def finite(metrics: Mapping[str, float]) -> dict[str, float]:
    """The metrics that are finite numbers."""
    return {name: value for name, value in metrics.items() if math.isfinite(value)}


class _TensorBoardTracker(Tracker):
    """Writes to ``<run>/tensorboard``; points of an earlier course of the same steps give way."""

    def __init__(self, context: TrackerContext) -> None:
        from torch.utils.tensorboard import SummaryWriter

        threading.excepthook = _report
        purge = context.start_step + 1 if context.start_step else 0  # step 0 is validated again
        self._writer = SummaryWriter(str(context.run_dir / "tensorboard"), purge_step=purge)
        self._writer.add_text("config", _as_code(context.settings), context.start_step)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add one point to every curve; values that are not finite are left out."""
        for name, value in finite(metrics).items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def rollouts(self, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        self._writer.add_text("rollouts", _as_code(rows), step)

    def close(self, failed: bool = False) -> None:
        self._writer.close()


def _as_code(value: Any) -> str:
    """JSON as Markdown shows it unchanged."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    return "\n".join(f"    {line}" for line in text.splitlines())


def _report(arguments: threading.ExceptHookArgs) -> None:
    """Print errors of threads, but not of TensorBoard's: its next write raises the same."""
    if type(arguments.thread).__name__ != "_AsyncWriterThread":
        threading.__excepthook__(arguments)


class _WandbTracker(Tracker):
    """Weights & Biases; its files lie in ``<run>/wandb``."""

    def __init__(self, context: TrackerContext) -> None:
        import wandb

        self._table = wandb.Table
        self._run = wandb.init(
            project=context.project,
            name=context.experiment,
            id=context.identity("wandb"),
            resume="allow",
            config=dict(context.settings),
            dir=str(context.run_dir),
        )

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log({service_name(k): v for k, v in finite(metrics).items()}, step=step)

    def rollouts(self, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        cells = [list(row.values()) for row in rows]
        self._run.log({"rollouts": self._table(COLUMNS, cells)}, step=step)

    def close(self, failed: bool = False) -> None:
        """Wait until all is sent, or written where it is offline."""
        self._run.finish(exit_code=int(failed))


class _MlflowTracker(Tracker):
    """MLflow, at ``MLFLOW_TRACKING_URI`` or in ``mlflow.db`` of the present directory."""

    def __init__(self, context: TrackerContext) -> None:
        from mlflow import MlflowClient

        self._client = client = MlflowClient()
        found = client.get_experiment_by_name(context.project)
        project = found.experiment_id if found else client.create_experiment(context.project)

        def new() -> str:
            run: str = client.create_run(project, run_name=context.experiment).info.run_id
            for name, value in flatten(context.settings).items():
                client.log_param(run, service_name(name, "_at_"), str(value)[:500])  # its limit
            return run

        self._id = context.identity("mlflow", new)
        client.update_run(self._id, status="RUNNING")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add one point to every curve, in as few requests as MLflow takes."""
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        points = [
            Metric(service_name(name, "_at_"), value, now, step)
            for name, value in finite(metrics).items()
        ]
        for start in range(0, len(points), 1000):  # its limit
            self._client.log_batch(self._id, metrics=points[start : start + 1000])

    def rollouts(self, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """As the artifact ``rollouts/<step>.json``, which MLflow shows as a table."""
        table = {"columns": COLUMNS, "data": [list(row.values()) for row in rows]}
        self._client.log_dict(self._id, table, f"rollouts/{step}.json")

    def close(self, failed: bool = False) -> None:
        self._client.set_terminated(self._id, "FAILED" if failed else "FINISHED")


TRACKERS: dict[str, Callable[[TrackerContext], Tracker]] = {
    "console": lambda c: TrainingProgress(c.total_steps, c.label, c.start_step),
    "tensorboard": _TensorBoardTracker,
    "wandb": _WandbTracker,
    "mlflow": _MlflowTracker,
    "jsonl": lambda context: Tracker(),  # metrics.jsonl, which every run writes
}
"""Trackers by the names that ``trainer.logger`` accepts."""


def check_trackers(names: Iterable[str]) -> None:
    """Refuse (ConfigError) trackers whose package is missing."""
    for name in names:
        if name in PACKAGES and importlib.util.find_spec(name) is None:
            told = f"trainer.logger names {name}, which is not installed"
            raise ConfigError(told, f"Run: pip install {name}")


@contextlib.contextmanager
def _named(name: str) -> Iterator[None]:
    """Turn what a service's client raises within the block into an error that names the tracker."""
    try:
        yield
    except Exception as error:  # a client may raise anything
        local = isinstance(error, OSError | MemoryError) and explain(error) is not None
        if local or isinstance(error, RefblendError):
            raise  # the disk's and the memory's faults are told elsewhere
        raise ResourceError(
            f"trainer.logger: {name} failed: {type(error).__name__}: {shorten(str(error))}",
            f"Repair its service or its key, or take {name} out of trainer.logger; "
            "the same command goes on.",
        ) from error


class Trackers(contextlib.AbstractContextManager["Trackers"]):
    """The trackers that ``trainer.logger`` names, as one; ResourceError names one that fails."""

    def __init__(self, names: Iterable[str], context: TrackerContext) -> None:
        self._run_dir = context.run_dir
        self._trackers: dict[str, Tracker] = {}
        try:
            for name in dict.fromkeys(names):
                with _named(name):
                    self._trackers[name] = TRACKERS[name](context)
        except BaseException as error:
            self._close(error)
            raise

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Show the metrics of one step everywhere, and its rollouts if they are dumped."""
        path = self._run_dir / "rollouts" / f"{step}.jsonl"
        rows = []
        if path.exists():
            # Not splitlines: a response may hold other line separators, which JSON keeps.
            lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")[:ROWS_SHOWN]
            rows = [{name: row[name] for name in COLUMNS} for row in map(json.loads, lines)]
        for name, tracker in self._trackers.items():
            with _named(name):
                tracker.log(step, metrics)
                if rows:
                    tracker.rollouts(step, rows)

    def message(self, text: str) -> None:
        """Tell the user something; nothing without a console."""
        for tracker in self._trackers.values():
            if isinstance(tracker, TrainingProgress):
                tracker.message(text)

    def _close(self, cause: BaseException | None) -> None:
        """Close every tracker; no failure may hide ``cause``, why the run stops, or undo a run."""
        for name, tracker in self._trackers.items():
            try:
                with _named(name):
                    tracker.close(cause is not None)
            except Exception as error:
                logger.warning("%s cannot be closed: %s", type(tracker).__name__, error)

    def __exit__(
        self, kind: type[BaseException] | None, cause: BaseException | None, *trace: object
    ) -> None:
        self._close(cause)

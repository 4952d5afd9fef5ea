"""Trackers of other projects: Weights & Biases, MLflow and SwanLab.

Whether and where they send a run is for their own variables to say (``WANDB_MODE=offline``,
``MLFLOW_TRACKING_URI``, ``SWANLAB_MODE=offline``).
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from refblend.documents import flatten
from refblend.trainer.trackers.base import COLUMNS, Tracker, TrackerContext, finite


class WandbTracker(Tracker):
    """Weights & Biases; its files lie in ``<run>/wandb``."""

    def __init__(self, context: TrackerContext) -> None:
        import wandb

        self._wandb = wandb
        self._run = wandb.init(
            project=context.project,
            name=context.experiment,
            id=context.identity("wandb"),
            resume="allow",
            dir=str(context.run_dir),
            config=dict(context.settings),
        )

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add one point to every curve."""
        self._run.log(finite(metrics), step=step)

    def rollouts(self, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """As a table."""
        data = [[row[name] for name in COLUMNS] for row in rows]
        self._run.log({"rollouts": self._wandb.Table(list(COLUMNS), data)}, step=step)

    def finish(self, summary: Mapping[str, Any], figure: Callable[[], Path]) -> None:
        """The summary under ``summary.*``, the figure as an image."""
        self._run.log({"run": self._wandb.Image(str(figure()))})
        for name, value in flatten(summary, "summary.").items():
            self._run.summary[name] = value

    def close(self, failed: bool = False) -> None:
        """Wait until all is sent, or written where it is offline."""
        self._run.finish(exit_code=int(failed))


class MlflowTracker(Tracker):
    """MLflow, at ``MLFLOW_TRACKING_URI`` or in ``mlflow.db`` of the present directory."""

    def __init__(self, context: TrackerContext) -> None:
        from mlflow import MlflowClient

        self._client = client = MlflowClient()
        found = client.get_experiment_by_name(context.project)
        project = found.experiment_id if found else client.create_experiment(context.project)

        def new() -> str:
            run: str = client.create_run(project, run_name=context.experiment).info.run_id
            for name, value in flatten(context.settings).items():
                client.log_param(run, name, str(value)[:500])  # MLflow's own limit
            return run

        self._id = context.identity("mlflow", new)
        client.update_run(self._id, status="RUNNING")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add one point to every curve."""
        for name, value in finite(metrics).items():
            self._client.log_metric(self._id, name.replace("@", "_at_"), value, step=step)

    def rollouts(self, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """As the artifact ``rollouts/<step>.json``, which MLflow shows as a table."""
        table = {"columns": COLUMNS, "data": [[row[name] for name in COLUMNS] for row in rows]}
        self._client.log_dict(self._id, table, f"rollouts/{step}.json")

    def finish(self, summary: Mapping[str, Any], figure: Callable[[], Path]) -> None:
        """As the artifacts ``summary.json`` and ``run.png``."""
        self._client.log_dict(self._id, dict(summary), "summary.json")
        self._client.log_artifact(self._id, str(figure()))

    def close(self, failed: bool = False) -> None:
        """Tell how the run ended."""
        self._client.set_terminated(self._id, "FAILED" if failed else "FINISHED")


class SwanlabTracker(Tracker):
    """SwanLab; its files lie in ``<run>/swanlog``."""

    def __init__(self, context: TrackerContext) -> None:
        import swanlab

        self._swanlab = swanlab
        self._total = context.total_steps
        self._run = swanlab.init(
            project=context.project,
            name=context.experiment,
            id=context.identity("swanlab"),
            resume="allow",
            log_dir=str(context.run_dir / "swanlog"),
            config=dict(context.settings),
        )

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add one point to every curve."""
        self._run.log(finite(metrics), step=step)

    def rollouts(self, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """As a table."""
        table = self._swanlab.echarts.Table()
        table.add(list(COLUMNS), [[str(row[name]) for name in COLUMNS] for row in rows])
        self._run.log({"rollouts": table}, step=step)

    def finish(self, summary: Mapping[str, Any], figure: Callable[[], Path]) -> None:
        """The summary as text, the figure as an image."""
        text = self._swanlab.Text(json.dumps(summary, indent=2))
        image = self._swanlab.Image(str(figure()))
        self._run.log({"summary": text, "run": image}, step=self._total)

    def close(self, failed: bool = False) -> None:
        """Wait until all is sent, or written where it is offline."""
        self._run.finish(*(["crashed"] if failed else []))

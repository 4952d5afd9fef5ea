"""How a run ended: ``summary.json``, and a finished run's closing message."""

import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from rich import box
from rich.console import Console
from rich.table import Table

from refblend.errors import RefblendError, ResourceError
from refblend.files import read_object
from refblend.trainer.checkpoint import CheckpointManager
from refblend.trainer.console import accuracies
from refblend.trainer.tracking import read_metrics

logger = logging.getLogger(__name__)


def failure(error: RefblendError) -> dict[str, Any]:
    """The summary of a run that ended with an error."""
    return {"status": "failed", "reason": str(error)}


def finished_summary(run_dir: Path, total_steps: int) -> dict[str, Any] | None:
    """The summary of a finished run; a damaged one gives a warning and is made again."""
    path = run_dir / "summary.json"
    try:
        summary = read_object(path) if path.exists() else {}
    except ValueError as error:
        logger.warning("%s is damaged (%s): the run goes on from its checkpoint", path, error)
        return None
    reached = summary.get("steps", total_steps) == total_steps
    return summary if summary.get("status") == "finished" and reached else None


def summarise_run(run_dir: Path, total_steps: int) -> dict[str, Any]:
    """Validations and incidents of a finished run; ResourceError if steps are missing."""
    frame = read_metrics(run_dir / "metrics.jsonl")
    if frame.empty or int(frame["step"].iloc[-1]) != total_steps:
        raise ResourceError(
            f"{run_dir / 'metrics.jsonl'} does not reach step {total_steps}",
            "Call the same command again to resume.",
        )
    validation = {}
    for name in frame.columns[frame.columns.str.startswith("val-core/")]:
        values = frame[name].dropna()
        if not values.empty:
            validation[name] = {
                "first": float(values.iloc[0]),
                "best": float(values.max()),
                "last": float(values.iloc[-1]),
            }
    incidents = {
        name.removeprefix("incidents/"): int(frame[name].fillna(0).sum())
        for name in frame.columns[frame.columns.str.startswith("incidents/")]
    }
    seconds = frame.get("timing_s/step")
    mean = float(seconds.mean()) if seconds is not None else math.nan
    return {
        "status": "finished",
        "steps": total_steps,
        "validation": validation,
        "incidents": incidents,
        "step_seconds_mean": mean if math.isfinite(mean) else None,
    }


MAIN = {
    "critic/score/mean": "training reward",
    "critic/acc/mean": "training accuracy",
    "critic/rewards/mean": "blended reward",
    "actor/ref_quality/score_mean": "judge's score",
    "actor/ref_quality/auc": "judge's AUC",
    "actor/ref_quality/weight": "weight w",
    "actor/ref_quality/avg_entropy": "entropy",
    "response_length/mean": "response tokens",
    "actor/ppo_kl": "PPO's KL",
    "actor/grad_norm": "gradient norm",
    "timing_s/step": "seconds per step",
}
"""Main metrics besides the validation accuracies, and their names for readers."""
_CLOSING = {
    "critic/score/mean": True,
    "critic/acc/mean": True,
    "actor/ref_quality/score_mean": False,
    "actor/ref_quality/auc": True,
    "actor/ref_quality/weight": False,
    "actor/ref_quality/avg_entropy": False,
    "response_length/mean": False,
}
"""Those of the closing table, and whether more is better."""


def metric_rows(frame: pd.DataFrame) -> list[tuple[str, float, float | None, float]]:
    """Name, first, best and last value of the main metrics; no best without a better direction."""
    chosen = [(source, name, True) for name, source in accuracies(frame.columns).items()]
    others = [(MAIN[name], name, better) for name, better in _CLOSING.items()]
    rows = []
    for label, name, more_is_better in (*chosen, *others):
        values = frame[name].dropna() if name in frame else pd.Series(dtype=float)
        if not values.empty:
            best = float(values.max()) if more_is_better else None
            rows.append((label, float(values.iloc[0]), best, float(values.iloc[-1])))
    return rows


def show_end(run_dir: Path, summary: Mapping[str, Any], console: Console) -> None:
    """Print the closing table of a finished run, whose ``summary.json`` is given."""

    def tell(line: str) -> None:
        console.print(line, soft_wrap=True, markup=False, highlight=False)

    tell(f"{run_dir}: finished after {summary['steps']} steps")
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("")
    for heading in ("first", "best", "last"):
        table.add_column(heading, justify="right")
    for label, *values in metric_rows(read_metrics(run_dir / "metrics.jsonl")):
        table.add_row(label, *("" if v is None else f"{v:.3f}" for v in values))
    console.print(table)
    told = ", ".join(f"{name} {count}" for name, count in summary["incidents"].items() if count)
    places = {
        "incidents": told or "none",
        "metrics": f"{run_dir / 'metrics.jsonl'}; tensorboard --logdir {run_dir / 'tensorboard'}",
        "responses": run_dir / "rollouts",
    }
    steps = CheckpointManager(run_dir / "checkpoints").steps()
    if steps:
        places["model"] = run_dir / "checkpoints" / f"global_step_{steps[-1]}" / "actor"
    places["go on"] = (
        "the same command with a higher trainer.total_training_steps, if no schedule needs it"
    )
    for name, place in places.items():
        tell(f"{name + ':':<11}{place}")

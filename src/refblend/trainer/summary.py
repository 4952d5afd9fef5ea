"""How a run ended: ``summary.json``."""

import logging
import math
from pathlib import Path
from typing import Any

from refblend.errors import RefblendError, ResourceError
from refblend.files import read_object
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

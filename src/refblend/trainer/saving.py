"""What a run writes and finds again: checkpoints with the state of a step, and its metrics."""

import logging
from dataclasses import dataclass
from typing import Any

from refblend.trainer.checkpoint import CheckpointManager, CheckpointRef, write_state
from refblend.trainer.console import validation_accuracy
from refblend.trainer.state import RunState
from refblend.trainer.trackers import Trackers
from refblend.trainer.tracking import MetricsLog, encode_line
from refblend.workers.worker_set import WorkerSet

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Snapshot:
    """The contents of a checkpoint besides the weights, taken after a step."""

    state: dict[str, Any]
    """:meth:`RunState.state_dict`, and the step's line of metrics as ``record``."""
    metric: float | None
    """By which the best checkpoint is kept; None when the step was not validated."""


@dataclass(frozen=True)
class RunOutputs:
    """The outputs of one run, which the trainer fills and does not own."""

    checkpoints: CheckpointManager
    log: MetricsLog
    """The canonical metrics."""
    trackers: Trackers
    """Views of the metrics, and messages for the user."""

    def write(self, step: int, metrics: dict[str, float]) -> None:
        """Record the metrics of a step, and show them."""
        non_finite = self.log.append(step, metrics)
        if non_finite:
            logger.warning("step %d: not finite, recorded as null: %s", step, ", ".join(non_finite))
        self.trackers.log(step, metrics)


def snapshot(state: RunState, metrics: dict[str, float]) -> Snapshot:
    """What is left by the last finished step, whose metrics these are."""
    line = encode_line(state.step, metrics)
    return Snapshot(state.state_dict() | {"record": line}, validation_accuracy(metrics))


def save(outputs: RunOutputs, workers: WorkerSet, tokenizer: Any, what: Snapshot) -> None:
    """Write a checkpoint of the workers' present weights and of a snapshot, atomically."""
    with outputs.checkpoints.staging(what.state["step"]) as staged:
        workers.save(staged)
        tokenizer.save_pretrained(staged / "actor")
        write_state(staged, what.state, metric=what.metric)


def restore(
    outputs: RunOutputs, workers: WorkerSet, state: RunState, start: CheckpointRef | None
) -> None:
    """Continue from a checkpoint; None: begin at step 0."""
    if start is None:
        outputs.log.truncate_after(-1)
        return
    saved = outputs.checkpoints.load_state(start)
    state.load_state_dict(saved)
    workers.load(start.path)
    workers.push_weights(version=state.step)
    outputs.trackers.message(f"resumed from step {state.step}")
    outputs.log.truncate_after(state.step)
    outputs.log.complete(state.step, saved["record"])

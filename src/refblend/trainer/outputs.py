"""The outputs of a run: checkpoints, metrics, and messages."""

from dataclasses import dataclass

from refblend.trainer.checkpoint import CheckpointManager
from refblend.trainer.tracking import MetricsLog, Trackers


@dataclass(frozen=True)
class RunOutputs:
    """The outputs of one run, which the trainer fills and does not own."""

    checkpoints: CheckpointManager
    """Where states are written and found."""
    log: MetricsLog
    """The canonical metrics."""
    trackers: Trackers
    """Views of the metrics, and messages for the user."""

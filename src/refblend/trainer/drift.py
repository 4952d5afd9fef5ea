"""The drift guard: accuracy on known items must not fall far below its initial value."""

from refblend.config.trainer import DriftGuardConfig
from refblend.errors import DriftError

SANITY_SOURCE = "refblend/sanity"
"""Stands for the data source of every row of ``data.sanity_files`` in the names of metrics."""
SANITY_KEY = f"val-core/{SANITY_SOURCE}/acc/mean@1"


class DriftGuard:
    """Watches the sanity accuracy over the validations of a run."""

    def __init__(self, config: DriftGuardConfig) -> None:
        self.config = config
        self._start: float | None = None

    def check(self, metrics: dict[str, float]) -> str | None:
        """A warning when the accuracy has fallen too far; None otherwise.

        Raises:
            DriftError: it has, and the configuration asks to stop.
        """
        now = metrics.get(SANITY_KEY)
        if now is None:
            return None
        if self._start is None:
            self._start = now
            return None
        if self._start - now <= self.config.max_drop:
            return None
        reason = f"drift: sanity accuracy fell from {self._start:.3f} to {now:.3f}"
        if self.config.stop:
            raise DriftError(
                reason, "Look at rollouts/; lower the learning rate or max_weight, or allow it."
            )
        return reason

    def state_dict(self) -> dict[str, float | None]:
        """The accuracy at the start."""
        return {"start": self._start}

    def load_state_dict(self, state: dict[str, float | None]) -> None:
        """Compare with the start of the run that is resumed."""
        self._start = state["start"]

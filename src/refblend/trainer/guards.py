"""The guards of a run: numbers that are not finite, a failing judge, and drift."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from refblend.config.trainer import DriftGuardConfig
from refblend.documents import show
from refblend.errors import DriftError, TrainingError
from refblend.scoring.result import InvalidRateGuard, JudgeResult

if TYPE_CHECKING:  # a refusal does not wait for torch
    from torch import Tensor

MAX_LOST_UPDATES = 5
"""Consecutive steps whose update may be skipped before the run stops."""
WARN_ABOVE = 0.2
"""Share of the judge's scores that may be invalid in a step before the user is warned."""


def require_finite(step: int, matrices: "Mapping[str, Tensor | None]", mask: "Tensor") -> None:
    """Refuse (TrainingError) NaN and infinities where ``mask`` (B, T) is not 0.

    ``matrices`` maps a description to (B, T), or (B,), or None, which was not computed.
    """
    for name, values in matrices.items():
        if values is None:
            continue
        non_finite = ~(values if values.dim() == 1 else values[mask.bool()]).isfinite()
        if non_finite.any():
            share = f"{int(non_finite.sum())} of {non_finite.numel()}"
            raise TrainingError(
                f"step {step}: {share} numbers of {name} are not finite",
                "Call the same command again to resume; if it comes back, lower the learning rate "
                "or grad_clip and resume from an earlier checkpoint.",
            )


def count_lost_update(counts: dict[str, int], role: str, lost: bool) -> None:
    """Count a role's lost updates in a row; TrainingError if there are too many."""
    counts[role] = counts.get(role, 0) + 1 if lost else 0
    if counts[role] >= MAX_LOST_UPDATES:
        raise TrainingError(
            f"the gradient of the {role} was not finite in {MAX_LOST_UPDATES} steps in a row",
            "Lower the learning rate and resume from an earlier checkpoint.",
        )


class JudgeWatch:
    """Warns about a failing judge, with an example, and stops the run if it fails too often."""

    def __init__(self, guard: InvalidRateGuard, notify: Callable[[str], None]) -> None:
        self._guard = guard
        self._notify = notify
        self._failing = False

    def update(self, step: int, results: Sequence[JudgeResult]) -> None:
        """Warn when a series of too many invalid scores begins; the guard may end the run."""
        invalid = [result for result in results if not result.valid]
        failing = len(invalid) > WARN_ABOVE * len(results)
        if failing and not self._failing:
            wrote = next((r for r in invalid if r.raw), invalid[0])
            what = f"e.g. it wrote {show(wrote.raw)}" if wrote.raw else "it wrote nothing"
            self._notify(
                f"step {step}: {len(invalid)} of {len(results)} scores of the judge are invalid "
                f"({wrote.path}); {what}"
            )
        self._failing = failing
        self._guard.update(results)


SANITY_SOURCE = "refblend/sanity"
"""Stands for the data source of every row of ``data.sanity_files`` in the names of metrics."""
SANITY_KEY = f"val-core/{SANITY_SOURCE}/acc/mean@1"


class DriftGuard:
    """Watches the sanity accuracy over the validations of a run."""

    def __init__(self, config: DriftGuardConfig) -> None:
        self.config = config
        self._reference: float | None = None

    def check(self, metrics: dict[str, float]) -> str | None:
        """A warning when the accuracy has fallen too far; DriftError where the run is to stop."""
        now = metrics.get(SANITY_KEY)
        if now is None:
            return None
        if self._reference is None or (self.config.reference == "best" and now > self._reference):
            self._reference = now
            return None
        if self._reference - now <= self.config.max_drop:
            return None
        reason = f"drift: sanity accuracy fell from {self._reference:.3f} to {now:.3f}"
        if self.config.stop:
            raise DriftError(
                reason, "Look at rollouts/; lower the learning rate or max_weight, or allow it."
            )
        return reason

    def state_dict(self) -> dict[str, float | None]:
        """The accuracy that later ones are compared with."""
        return {"start": self._reference}

    def load_state_dict(self, state: dict[str, float | None]) -> None:
        """Compare with that of the run that is resumed."""
        self._reference = state["start"]

"""Non-finite numbers end training before they reach the weights.

A non-finite gradient is handled elsewhere: its update is skipped and counted
(:class:`refblend.workers.optimization.Trainable`), and only a series of them ends the run.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from refblend.errors import TrainingError

MAX_LOST_UPDATES = 5
"""Consecutive steps whose update may be skipped before the run stops."""


def require_finite(step: int, matrices: Mapping[str, Tensor | None], mask: Tensor) -> None:
    """Refuse NaN and infinities.

    Args:
        step: for the message.
        matrices: by description; (B, T), or (B,) with one value per response. None: not computed.
        mask: (B, T), 1 on response tokens; other positions are ignored.

    Raises:
        TrainingError: names the first matrix that has one, and how many.
    """
    for name, values in matrices.items():
        if values is None:
            continue
        non_finite = ~torch.isfinite(values if values.dim() == 1 else values[mask.bool()])
        if non_finite.any():
            share = f"{int(non_finite.sum())} of {non_finite.numel()}"
            raise TrainingError(
                f"step {step}: {share} numbers of {name} are not finite",
                "Call the same command again to resume; if it comes back, lower the learning rate "
                "or grad_clip and resume from an earlier checkpoint.",
            )


class LostUpdates:
    """Counts the consecutive most recent skipped updates of each role."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def update(self, role: str, lost: bool) -> None:
        """Count one step.

        Raises:
            TrainingError: there were too many.
        """
        self._counts[role] = self._counts.get(role, 0) + 1 if lost else 0
        if self._counts[role] >= MAX_LOST_UPDATES:
            raise TrainingError(
                f"the gradient of the {role} was not finite in {MAX_LOST_UPDATES} steps in a row",
                "Lower the learning rate and resume from an earlier checkpoint.",
            )

    def state_dict(self) -> dict[str, int]:
        """The counts, for a checkpoint."""
        return dict(self._counts)

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Restore :meth:`state_dict`."""
        self._counts = dict(state)

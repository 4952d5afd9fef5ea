import math

import pytest
import torch

from refblend.errors import TrainingError
from refblend.trainer.guards import MAX_LOST_UPDATES, LostUpdates, require_finite

MASK = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]])


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_the_first_matrix_with_an_odd_number_is_named(bad: float) -> None:
    fine = torch.zeros(2, 3)
    non_finite = fine.clone()
    non_finite[0, 1] = bad
    with pytest.raises(TrainingError, match="step 7: 1 of 3 numbers of the values are not finite"):
        require_finite(
            7, {"none": None, "fine": fine, "the values": non_finite, "more": non_finite}, MASK
        )
    scores = torch.tensor([0.5, bad])
    with pytest.raises(TrainingError, match="step 1: 1 of 2 numbers of the scores"):
        require_finite(1, {"the scores": scores}, MASK)


def test_padding_is_not_looked_at() -> None:
    non_finite = torch.zeros(2, 3)
    non_finite[1, 1] = math.nan
    require_finite(1, {"values": non_finite, "empty": torch.zeros(0)}, MASK)


def test_updates_lost_in_a_row_stop_the_run() -> None:
    lost = LostUpdates()
    for _ in range(MAX_LOST_UPDATES - 1):
        lost.update("actor", True)
        lost.update("critic", True)
    lost.update("critic", False)
    lost.update("critic", True)
    resumed = LostUpdates()
    resumed.load_state_dict(lost.state_dict())
    for guard in (lost, resumed):
        with pytest.raises(TrainingError, match="the gradient of the actor was not finite in 5"):
            guard.update("actor", True)

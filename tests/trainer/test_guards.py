"""Guards of a run: drift, numbers that are not finite, and a judge that fails."""

import json
import math

import pytest
import torch

from refblend.config.trainer import DriftGuardConfig
from refblend.errors import DriftError, ScoringError, TrainingError
from refblend.scoring.result import InvalidRateGuard, JudgeResult
from refblend.trainer.datasets import load_run_data
from refblend.trainer.guards import (
    MAX_LOST_UPDATES,
    SANITY_KEY,
    SANITY_SOURCE,
    DriftGuard,
    JudgeWatch,
    count_lost_update,
    require_finite,
)


def at(accuracy: float) -> dict[str, float]:
    return {SANITY_KEY: accuracy, "val-core/other/acc/mean@1": 0.0}


def test_warns_when_it_falls_by_more_than_the_margin():
    guard = DriftGuard(DriftGuardConfig(max_drop=0.25))
    assert guard.check(at(0.5)) is None
    assert guard.check(at(0.25)) is None, "the margin itself is allowed"
    assert guard.check(at(0.9)) is None
    warning = guard.check(at(0.125))
    assert "0.500" in warning
    assert "0.125" in warning


def test_an_actor_that_learned_is_compared_with_its_best():
    """From 0.25 up to 0.9 and down to 0.5: never below the start, and lost 0.4 all the same."""
    course = (0.25, 0.9, 0.85, 0.5)
    for reference, warned in (("start", False), ("best", True)):
        settings = {"max_drop": 0.2, "reference": reference}
        guard = DriftGuard(DriftGuardConfig.model_validate(settings))
        assert [guard.check(at(accuracy)) for accuracy in course[:3]] == [None] * 3
        resumed = DriftGuard(guard.config)
        resumed.load_state_dict(json.loads(json.dumps(guard.state_dict())))
        assert (resumed.check(at(course[3])) is not None) == warned


def test_no_sanity_set_no_guard():
    guard = DriftGuard(DriftGuardConfig())
    assert guard.check({"val-core/refblend/arithmetic/acc/mean@1": 1.0}) is None
    assert guard.check({}) is None
    assert guard.state_dict() == {"start": None}


def test_stops_when_told_to():
    guard = DriftGuard(DriftGuardConfig(max_drop=0.1, stop=True))
    guard.check(at(0.5))
    with pytest.raises(DriftError, match=r"0\.500 to 0\.300") as caught:
        guard.check(at(0.3))
    assert caught.value.remedy


def test_any_rows_may_be_the_sanity_set(tiny_config, tiny_data_dir):
    """It is named by its purpose; see test_validation.py for the metrics."""
    data = load_run_data(tiny_config(f"data.sanity_files=[{tiny_data_dir / 'train.parquet'}]"))
    assert [part.source for part in data.validation_sets] == [None, SANITY_SOURCE]


MASK = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]])


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_the_first_matrix_with_an_odd_number_is_named(bad):
    fine = torch.zeros(2, 3)
    non_finite = fine.clone()
    non_finite[0, 1] = bad
    with pytest.raises(TrainingError, match="step 7: 1 of 3 numbers of the values are not finite"):
        require_finite(
            7, {"none": None, "fine": fine, "the values": non_finite, "more": non_finite}, MASK
        )
    padded = torch.where(MASK.bool(), fine, bad)
    require_finite(1, {"padding is not looked at": padded, "empty": torch.zeros(0)}, MASK)
    scores = torch.tensor([0.5, bad])
    with pytest.raises(TrainingError, match="step 1: 1 of 2 numbers of the scores"):
        require_finite(1, {"the scores": scores}, MASK)


def test_updates_lost_in_a_row_stop_the_run():
    counts: dict[str, int] = {}
    for _ in range(MAX_LOST_UPDATES - 1):
        count_lost_update(counts, "actor", True)
        count_lost_update(counts, "critic", True)
    count_lost_update(counts, "critic", False)
    count_lost_update(counts, "critic", True)
    with pytest.raises(TrainingError, match="the gradient of the actor was not finite in 5"):
        count_lost_update(counts, "actor", True)


GOOD = JudgeResult(0.7, True, "text", raw=r"\box{0.7}")
BABBLE = JudgeResult(0.5, False, "default", raw="I cannot say")
FAILED = JudgeResult(0.5, False, "error", raw="")


def watch(limit: float) -> tuple[JudgeWatch, list[str]]:
    told: list[str] = []
    return JudgeWatch(InvalidRateGuard(limit, 5), told.append), told


def test_more_than_a_fifth_is_told_with_an_example_once_a_series():
    judge, told = watch(1.0)
    judge.update(1, [GOOD] * 4 + [BABBLE])
    assert told == []
    judge.update(2, [GOOD] * 3 + [FAILED, BABBLE])
    judge.update(3, [BABBLE] * 5)
    assert told == [
        "step 2: 2 of 5 scores of the judge are invalid (default); e.g. it wrote 'I cannot say'"
    ]
    judge.update(4, [GOOD] * 5)
    judge.update(5, [FAILED] * 5)
    assert told[1:] == ["step 5: 5 of 5 scores of the judge are invalid (error); it wrote nothing"]


def test_the_first_step_can_stop_the_run_after_its_warning():
    judge, told = watch(0.9)
    with pytest.raises(ScoringError, match=r"100\.0% of the judge scores of the last 1 steps"):
        judge.update(1, [BABBLE] * 4)
    assert len(told) == 1

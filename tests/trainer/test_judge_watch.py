"""A judge that fails is told of from its first step."""

import pytest

from refblend.errors import ScoringError
from refblend.scoring.result import InvalidRateGuard, JudgeResult
from refblend.trainer.guards import JudgeWatch

GOOD = JudgeResult(0.7, True, "text", raw=r"\box{0.7}")
BABBLE = JudgeResult(0.5, False, "default", raw="I cannot say")
FAILED = JudgeResult(0.5, False, "error", raw="")


def watch(limit: float) -> tuple[JudgeWatch, list[str]]:
    told: list[str] = []
    return JudgeWatch(InvalidRateGuard(limit, 5), told.append), told


def test_more_than_a_fifth_is_told_with_an_example_once_a_series() -> None:
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


def test_the_first_step_can_stop_the_run_after_its_warning() -> None:
    judge, told = watch(0.9)
    with pytest.raises(ScoringError, match=r"100\.0% of the judge scores of the last 1 steps"):
        judge.update(1, [BABBLE] * 4)
    assert len(told) == 1

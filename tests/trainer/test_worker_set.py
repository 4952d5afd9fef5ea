"""What becomes of a batch whose judge misses its deadline."""

from typing import Any, cast

from refblend.trainer.worker_set import WorkerSet
from refblend.workers.groups import RestartBudget, WorkerTimeoutError

ANSWERS = ["a verdict", "another"]


class HangingOnce:
    """A judge's group and its pending call: the first wait ends at the deadline."""

    def __init__(self) -> None:
        self.replaced = self.asked = 0

    def replace(self, error: Exception) -> None:
        assert isinstance(error, WorkerTimeoutError)
        self.replaced += 1

    def repeat(self) -> None:
        self.asked += 1

    def result(self) -> Any:
        if self.asked == 0:
            raise WorkerTimeoutError("the judge worker did not answer within 1 s", "Raise it.")
        return ANSWERS

    def call(self, method: str) -> "HangingOnce":
        assert method == "last_call"
        return self


def judged(tiny_config: Any, *overrides: str) -> tuple[HangingOnce, list[Any]]:
    judge: Any = HangingOnce()
    missing = cast("Any", None)
    workers = WorkerSet(
        tiny_config(*overrides),
        missing,
        missing,
        missing,
        None,
        None,
        judge,
        RestartBudget(1),
        print,
    )
    verdicts, _ = workers.judgements(judge, len(ANSWERS))
    return judge, verdicts


def test_a_judge_that_hangs_is_replaced_and_asked_again(tiny_config) -> None:
    judge, verdicts = judged(tiny_config)
    assert (judge.replaced, judge.asked) == (1, 1)
    assert verdicts == ANSWERS


def test_past_a_deadline_of_its_own_the_samples_have_no_score(tiny_config) -> None:
    key = "algorithm.ref_quality_score"
    judge, verdicts = judged(tiny_config, f"{key}.scoring.timeout_s=1", f"{key}.invalid_score=0.25")
    assert (judge.replaced, judge.asked) == (1, 0)
    assert [(v.score, v.valid, v.path) for v in verdicts] == [(0.25, False, "error")] * 2
    assert "did not answer within 1 s" in verdicts[0].raw

"""What becomes of a batch whose judge misses its deadline."""

from typing import Any, cast

from refblend.workers.restarts import RestartBudget, WorkerTimeoutError
from refblend.workers.worker_set import WorkerSet


class Late:
    """A judge's pending call that ended at the deadline; its group was replaced meanwhile."""

    def result(self) -> Any:
        raise WorkerTimeoutError("the judge worker did not answer within 1 s", "Raise it.")


def test_past_a_deadline_of_its_own_the_samples_have_no_score(tiny_config) -> None:
    key = "algorithm.ref_quality_score"
    config = tiny_config(f"{key}.scoring.timeout_s=1", f"{key}.invalid_score=0.25")
    judge: Any = Late()
    missing = cast("Any", None)
    workers = WorkerSet(config, missing, RestartBudget(1), print, {"judge": judge})
    results, _ = workers.judge_results(judge, 2)
    assert [(v.score, v.valid, v.path) for v in results] == [(0.25, False, "error")] * 2
    assert "did not answer within 1 s" in results[0].raw

import math

import pytest

from refblend.trainer.step_metrics import StepRecord, update_notices


def test_updates_enter_under_their_role_and_incidents_add_up() -> None:
    record = StepRecord()
    assert record.metrics == {
        f"incidents/{k}": 0.0 for k in ("oom", "nonfinite", "overlength", "drift", "reward_error")
    }
    memory = "perf/max_memory_allocated_gb"
    lost, made = {"grad_norm": math.nan, "nonfinite": 3.0}, {"grad_norm": 0.5, "nonfinite": 0.0}
    record.add_update("critic", lost | {"oom": 1.0, "lr": 0.1, memory: 3.0})
    record.add_update("actor", made | {"oom": 2.0, "pg_loss": -1.0, memory: 2.0})
    found = record.metrics
    assert (found["incidents/oom"], found["incidents/nonfinite"]) == (3.0, 3.0)
    assert math.isnan(found.pop("critic/grad_norm"))
    assert {k: v for k, v in found.items() if not k.startswith("incidents/")} == {
        "critic/lr": 0.1,
        "actor/grad_norm": 0.5,
        "actor/pg_loss": -1.0,
        memory: 3.0,
    }


def test_a_stage_that_fails_has_no_time() -> None:
    record = StepRecord()
    with record.timed("gen"):
        pass
    with pytest.raises(KeyError), record.timed("adv"):
        raise KeyError
    assert set(record.seconds) == {"gen"}
    assert record.seconds["gen"] >= 0


def test_the_user_is_told_of_what_went_wrong_in_an_update() -> None:
    assert update_notices("actor", {"oom": 0.0, "grad_norm": 1.0, "nonfinite": 0.0}) == []
    lost = {"oom": 2.0, "grad_norm": math.inf, "nonfinite": 1.0}
    halved, skipped = update_notices("critic", lost)
    assert halved.startswith("memory ran out in the critic's update")
    assert "2 times halved" in halved
    assert skipped == "the critic's gradient is not finite; skipped: the update"
    (some,) = update_notices("actor", {"oom": 0.0, "grad_norm": 1.0, "nonfinite": 2.0})
    assert some == "the actor's gradient is not finite; skipped: 2 of the step's updates"

"""What a step leaves to the next one survives a checkpoint, whatever happens after it."""

import json

from refblend.scoring.result import JudgeResult
from refblend.trainer.saving import RunState

SETTINGS = ("algorithm.kl_ctrl={type: adaptive, kl_coef: 0.01, target_kl: 0.1, horizon: 100}",)


def advance(state: RunState) -> list[int]:
    """One step's worth of changes; the prompts that it took."""
    prompts = state.sampler.next_batch()
    state.kl_controller.update(0.4, n_steps=8)
    state.drift.check({"val-core/refblend/sanity/acc/mean@1": 0.9})
    state.invalid_guard.update([JudgeResult(0.5, False, "error"), JudgeResult(0.7, True, "text")])
    state.lost_updates.update("actor", True)
    state.step += 1
    return prompts


def test_a_snapshot_is_not_changed_by_later_steps_and_restores_the_state(tiny_config) -> None:
    config = tiny_config(*SETTINGS)
    state = RunState.initial(config, 64)
    advance(state)
    taken = state.state_dict()
    saved = json.dumps(taken)
    following = [advance(state) for _ in range(3)]
    assert json.dumps(taken) == saved
    resumed = RunState.initial(config, 64)
    resumed.load_state_dict(json.loads(saved))
    assert resumed.step == 1
    assert [advance(resumed) for _ in range(3)] == following
    assert json.dumps(resumed.state_dict()) == json.dumps(state.state_dict())
    assert resumed.kl_controller.value == state.kl_controller.value != 0.01

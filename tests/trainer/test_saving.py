"""What a step leaves to the next one survives a checkpoint, whatever happens after it."""

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
from huggingface_hub import ModelCard

from refblend.scoring.result import JudgeResult
from refblend.trainer.checkpoint import CheckpointManager, CheckpointRef, write_state
from refblend.trainer.guards import count_lost_update
from refblend.trainer.saving import RunOutputs, RunState, model_card, restore, snapshot
from refblend.trainer.tracking import MetricsLog

SETTINGS = ("algorithm.kl_ctrl={type: adaptive, kl_coef: 0.01, target_kl: 0.1, horizon: 100}",)


def advance(state: RunState) -> list[int]:
    """One step's worth of changes; the prompts that it took."""
    prompts = state.sampler.next_batch()
    state.kl_controller.update(0.4, n_steps=8)
    state.drift.check({"val-core/refblend/sanity/acc/mean@1": 0.9})
    state.invalid_window.update([JudgeResult(0.5, False, "error"), JudgeResult(0.7, True, "text")])
    count_lost_update(state.lost_updates, "actor", True)
    state.step += 1
    return prompts


def test_a_snapshot_is_not_changed_by_later_steps_and_restores_the_state(tiny_config):
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


@pytest.mark.parametrize("back_to", [2, None])
def test_going_back_forgets_the_responses_of_later_steps(tiny_config, tmp_path, back_to):
    """The other branch may dump at other steps, or end earlier."""
    state = RunState.initial(tiny_config(), 64)
    manager = CheckpointManager(tmp_path / "checkpoints", 3)
    log = MetricsLog(tmp_path / "metrics.jsonl")
    rollouts = tmp_path / "rollouts"
    rollouts.mkdir()
    (rollouts / "notes.txt").touch()
    for step in range(1, 5):
        state.step = step
        log.append(step, {"loss": 1.0})
        (rollouts / f"{step}.jsonl").touch()
        with manager.staging(step) as staged:
            write_state(staged, snapshot(state, {"loss": 1.0}))
    workers = SimpleNamespace(load=lambda path: None, push_weights=lambda version: None)
    trackers = SimpleNamespace(message=lambda text: None)
    start = CheckpointRef(back_to, manager.path(back_to)) if back_to else None
    restore(RunOutputs(manager, log, cast("Any", trackers)), cast("Any", workers), state, start)
    kept = {f"{step}.jsonl" for step in range(1, (back_to or 0) + 1)}
    assert {path.name for path in rollouts.iterdir()} == kept | {"notes.txt"}


def test_a_card_says_what_trained_the_model_on_what_with_which_scores(tiny_config):
    """Read as the hub reads it."""
    config = tiny_config()
    scores = {"val-core/arith/acc/mean@1": 0.25, "val-core/sanity/acc/mean@1": None}
    card = ModelCard(model_card(config, {"step": 4} | scores))
    assert card.data.library_name == "transformers"
    assert card.data.tags == ["refblend", "ppo"]
    assert "| arith | 0.250 |" in card.text
    assert "sanity" not in card.text
    assert config.algorithm.adv_estimator in card.text
    assert str(config.trainer.default_local_dir) not in card.content

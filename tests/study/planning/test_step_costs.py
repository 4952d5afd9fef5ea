"""Costs of a step as runs record them."""

import json
from pathlib import Path

import pytest

from refblend.config import load_config
from refblend.errors import StudyError
from refblend.study.planning.step_costs import read_costs

PARAMS = Path(__file__).parents[3] / "params"
FILES = [PARAMS / "ppo.yaml", PARAMS / "scale" / "cpu.yaml"]
SERIAL = "algorithm.ref_quality_score.scoring.overlap=false"


def made_run(folder: Path, prompts: int, seconds: dict[str, float], *overrides: str) -> Path:
    """A run of five steps, the first two slower; the median of the others is ``seconds``."""
    folder.mkdir()
    batch = [f"data.train_batch_size={prompts}", "actor_rollout_ref.actor.ppo_mini_batch_size=12"]
    config = load_config(FILES, [*batch, *overrides])
    (folder / "config.json").write_text(json.dumps(config.resolved()))
    factors = (9, 5, 1, 0.5, 2)
    lines = [
        {"step": i} | {f"timing_s/{k}": v * f for k, v in seconds.items()}
        for i, f in enumerate(factors, start=1)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


LARGE = {"gen": 6.0, "ref_quality_score": 3.0, "old_log_prob": 1.0, "update_actor": 4.0} | {
    "update_weights": 0.5, "step": 15.0
}  # fmt: skip
SMALL = {"gen": 4.0, "ref_quality_score": 1.5, "old_log_prob": 0.25, "update_actor": 3.0} | {
    "update_weights": 0.5, "step": 9.5
}  # fmt: skip


def test_costs_are_the_medians_of_a_runs_later_steps(tmp_path: Path) -> None:
    found = read_costs([made_run(tmp_path / "run", 24, LARGE, SERIAL)], weights_gb=0.5)
    assert {name: cost.seconds(24) for name, cost in found.stages.items()} == pytest.approx(
        {name: LARGE[name] for name in found.stages}
    )
    assert all(cost.fixed == 0 for cost in found.stages.values())
    assert found.driver.seconds(24) == pytest.approx(15 - 14.5)
    assert (found.push, found.prompts, found.responses, found.updates) == (0.5, 24, 8, 2)
    assert found.weights_gb == 0.5


def test_ranks_divide_a_stage_and_engines_do_not(tmp_path: Path) -> None:
    sharded = "actor_rollout_ref.actor.fsdp_config.world_size=2"
    found = read_costs([made_run(tmp_path / "run", 24, LARGE, SERIAL, sharded)], weights_gb=0)
    assert found.stages["update_actor"].seconds(24) == pytest.approx(2 * LARGE["update_actor"])
    assert found.stages["gen"].seconds(24) == pytest.approx(LARGE["gen"])


def test_a_second_run_tells_what_every_batch_takes(tmp_path: Path) -> None:
    runs = [
        made_run(tmp_path / "b", 12, SMALL, SERIAL),
        made_run(tmp_path / "a", 24, LARGE, SERIAL),
    ]
    found = read_costs(runs, weights_gb=0)
    # gen 6 and 4 s: 2 s for 12 prompts, so 2 s for none. old_log_prob grows faster than the batch:
    # nothing is fixed, and a whole batch costs what was measured.
    assert found.prompts == 24
    assert found.stages["gen"].fixed == pytest.approx(2)
    assert found.stages["gen"].per_prompt == pytest.approx(1 / 6)
    assert found.stages["old_log_prob"].fixed == pytest.approx(0)
    assert found.stages["old_log_prob"].seconds(24) == pytest.approx(1)
    # 0.25 s without a stage, and 0.5 s for twice the prompts.
    assert (found.driver.fixed, found.driver.seconds(24)) == pytest.approx((0, 0.5))
    with pytest.raises(StudyError, match="do not differ in the size of the batch alone"):
        read_costs([runs[0], runs[0]], weights_gb=0)


def test_runs_whose_stages_disturbed_one_another_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="overlap=false"):
        read_costs([made_run(tmp_path / "a", 24, LARGE)], weights_gb=0)
    engines = "actor_rollout_ref.rollout.num_engines=2"
    with pytest.raises(StudyError, match=r"rollout\.num_engines=1"):
        read_costs([made_run(tmp_path / "b", 24, LARGE, SERIAL, engines)], weights_gb=0)
    cut = {name: LARGE[name] for name in LARGE if name != "gen"}
    with pytest.raises(StudyError, match="no timing_s/gen"):
        read_costs([made_run(tmp_path / "c", 24, cut, SERIAL)], weights_gb=0)


@pytest.mark.parametrize("content", [None, "[]", '{"figures": {}}', '{"figures": {"costs": {}}}'])
def test_a_file_without_costs_is_refused(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "planning.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(StudyError, match=r"planning\.json: no costs"):
        read_costs([path])

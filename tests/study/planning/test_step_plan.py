"""Costs of a step as runs record them, and the search for its best placement."""

import json
from pathlib import Path

import pytest

from refblend.config import load_config
from refblend.errors import StudyError
from refblend.study.planning.step_costs import read_costs
from refblend.study.planning.step_model import Network, Place, StageCost, StepCosts, predict
from refblend.study.planning.step_plan import plan_step

PARAMS = Path(__file__).parents[3] / "params"
FILES = [PARAMS / "ppo.yaml", PARAMS / "scale" / "cpu.yaml"]
SERIAL = "algorithm.ref_quality_score.scoring.overlap=false"
COSTS = StepCosts(
    stages={
        "gen": StageCost(1.0, 4.0),
        "ref_quality_score": StageCost(0.5),
        "old_log_prob": StageCost(0.25),
        "update_actor": StageCost(0.75),
    },
    driver=StageCost(0.0, 0.5),
    push=0.25,
    prompts=64,
    responses=4,
    weights_gb=2.0,
)


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
    with pytest.raises(StudyError, match="differ in more, or less"):
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


def test_the_benchmark_of_a_step_tells_its_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The committed record, with the batch of scale cpu."""
    monkeypatch.chdir(PARAMS.parent)
    path = Path("benchmarks/results/step.json")
    wall = json.loads(path.read_text())["figures"]["step_wall_seconds"]
    found = read_costs([path], weights_gb=0.004)
    assert (found.prompts, found.responses, found.weights_gb) == (24, 8, 0.004)
    assert found.stages["gen"].seconds(24) == pytest.approx(wall["timing_s/gen"])
    total = sum(cost.seconds(24) for cost in (*found.stages.values(), found.driver)) + found.push
    assert total == pytest.approx(wall["timing_s/step"])


def test_a_single_device_holds_everything() -> None:
    (only,) = plan_step(COSTS, 1, 1, Network())
    assert (only.placement, only.best) == ("co-located", True)
    whole = sum(cost.seconds(64) for cost in COSTS.stages.values())
    assert only.prediction.seconds == pytest.approx(whole + 0.5 + 0.25)


def test_the_best_split_of_four_devices_is_the_best_of_all_splits() -> None:
    """Every split, simulated here again."""
    net = Network()
    plans = {plan.placement: plan for plan in plan_step(COSTS, 2, 2, net)}
    best = plans["dedicated"]
    assert sum(best.processes.values()) == best.devices == 4
    assert best.processes == {"rollout": 2, "judge": 1, "actor": 1}
    devices = [Place(k // 2, str(k)) for k in range(4)]
    tried = [
        predict(
            COSTS,
            {
                "actor": devices[: 4 - e - j],
                "rollout": devices[4 - e - j : 4 - j],
                "judge": devices[4 - j :],
            },
            net,
        ).seconds
        for e in range(1, 3)
        for j in range(1, 4 - e)
    ]
    assert best.prediction.seconds == pytest.approx(min(tried))
    assert [plan.placement for plan in plans.values() if plan.best] == ["co-located"]


def test_more_engines_than_prompts_are_never_planned() -> None:
    plans = plan_step(COSTS, 32, 8, Network())
    assert all(plan.processes["rollout"] <= 64 >= plan.processes["judge"] for plan in plans)
    assert {plan.devices for plan in plans} == {256}


def test_no_nodes_and_no_devices_are_refused() -> None:
    for size in ((0, 1), (1, 0)):
        with pytest.raises(StudyError, match="at least 1"):
            plan_step(COSTS, *size, Network())

"""The model of a step against sums worked out by hand, and against the bounds of any schedule."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refblend.study.planning.step import (
    Network,
    Place,
    StageCost,
    StepCosts,
    exchange_seconds,
    plan_step,
    predict,
    shared_ends,
    shares,
)

FREE = Network(inside=float("inf"), between=float("inf"))
COSTS = StepCosts(
    stages={
        "gen": StageCost(per_prompt=1.0, fixed=2.0),
        "ref_quality_score": StageCost(0.5),
        "old_log_prob": StageCost(0.25),
        "update_actor": StageCost(0.75),
    },
    driver=StageCost(0.0625, 0.5),
    push=0.5,
    prompts=8,
    responses=2,
)


def layout(**devices: str) -> dict[str, list[Place]]:
    """``rollout="0a 0b"``: two engines, on devices a and b of node 0."""
    return {
        role: [Place(int(name[0]), name) for name in names.split()]
        for role, names in devices.items()
    }


def test_works_on_one_device_share_it() -> None:
    # Both run at half speed until 2, when the first is done; the other has 2 of its 3 left.
    assert shared_ends([1, 3]) == [2, 4]
    # Capacity 1.5: three get half each, two 0.75, one 1. The first ends at 2; the second, with 0.5
    # left, after 2/3 more; the third has then 3 - 1 - 0.5 = 1.5 left.
    assert shared_ends([3, 1, 1.5], 1.5) == pytest.approx([2 + 2 / 3 + 1.5, 2, 2 + 2 / 3])


def test_engines_get_prompts_and_ranks_get_rows_of_every_mini_batch() -> None:
    assert shares(COSTS, "gen", 3) == [3, 3, 2]
    assert shares(COSTS, "gen", 16) == [1] * 8 + [0] * 8
    assert shares(COSTS, "old_log_prob", 3) == [3, 2.5, 2.5]  # 16 rows: 6, 5, 5
    # Two mini-batches of 8 rows: 3, 3, 2 rows of each, so 6, 6, 4 rows, two for each prompt.
    assert shares(replace(COSTS, updates=2), "update_actor", 3) == [3, 3, 2]


def test_a_step_by_hand_where_every_role_has_a_device() -> None:
    # gen 2 + 8 = 10; judge 4 beside the pass of 2; driver 1; update 6; push 0.5: 21.5.
    places = layout(rollout="0a", judge="0b", actor="0c")
    found = predict(COSTS, places, FREE)
    assert found.seconds == pytest.approx(21.5)
    assert found.ends["old_log_prob"] == pytest.approx(12)
    assert found.ends["ref_quality_score"] == pytest.approx(14)
    assert found.idle == pytest.approx(
        {"rollout": 1 - 10.5 / 21.5, "judge": 1 - 4 / 21.5, "actor": 1 - 8 / 21.5}
    )
    assert found.devices_idle == pytest.approx(1 - 22.5 / (3 * 21.5))


def test_a_step_by_hand_on_one_device_is_the_sum_of_its_work() -> None:
    places = layout(rollout="0a", judge="0a", actor="0a")
    assert predict(COSTS, places, FREE).seconds == pytest.approx(10 + 4 + 2 + 1 + 6 + 0.5)


def test_two_engines_save_what_is_not_fixed_and_two_nodes_send_the_weights() -> None:
    costs, net = replace(COSTS, weights_gb=3.0), Network(inside=6.0, between=1.5)
    # gen 2 + 4; judge 4; driver 1; two ranks halve 6, and gather twice and scatter once half of
    # 3 GB at 6 GB/s: 0.75. Node 1 gets the weights in 2 s, then both engines load.
    places = layout(rollout="0a 1a", judge="0c", actor="0d 0e")
    assert predict(costs, places, net).seconds == pytest.approx(6 + 4 + 1 + 3 + 0.75 + 2 + 0.5)
    # A rank on each node: nothing to gather, 2 · 1/2 · 3 GB at 1.5 GB/s.
    actors = layout(actor="0d 1d")["actor"]
    assert exchange_seconds(costs, "update_actor", actors, net) == pytest.approx(2.0)
    assert exchange_seconds(costs, "old_log_prob", actors, net) == 0
    # Three further nodes are served by one sender: 6 s.
    places = layout(rollout="0a 1a 2a 3a", judge="0c", actor="0d")
    assert predict(costs, places, net).seconds == pytest.approx(2 + 2 + 4 + 1 + 6 + 6 + 0.5)


works = st.floats(0.01, 100)


@given(st.lists(works, min_size=1, max_size=12), st.floats(0.5, 4))
def test_a_shared_device_is_never_idle_and_favours_nobody(
    seconds: list[float], capacity: float
) -> None:
    ends = shared_ends(seconds, capacity)
    slack = 1 + 1e-6
    assert max(ends) * slack >= max(sum(seconds) / capacity, max(seconds))
    assert max(ends) <= sum(seconds) / min(1.0, capacity) * slack
    assert [ends[k] for k in sorted(range(len(ends)), key=seconds.__getitem__)] == sorted(ends)


costs = st.builds(
    StepCosts,
    stages=st.fixed_dictionaries(
        {name: st.builds(StageCost, works, works) for name in COSTS.stages}
    ),
    driver=st.builds(StageCost, works, works),
    push=works,
    prompts=st.integers(1, 200),
    responses=st.integers(1, 8),
    updates=st.integers(1, 3),
    weights_gb=works,
)


@settings(max_examples=30, deadline=None)
@given(costs, st.integers(1, 12), st.sampled_from(["rollout", "judge", "actor"]))
def test_another_process_on_a_device_of_its_own_never_takes_longer(
    drawn: StepCosts, count: int, role: str
) -> None:
    def seconds(number: int) -> float:
        own = {r: "0" + r for r in ("rollout", "judge", "actor")}
        own[role] = " ".join(f"0{role}{k}" for k in range(number))
        return predict(drawn, layout(**own), FREE).seconds

    assert seconds(count + 1) <= seconds(count) * (1 + 1e-6)


@settings(max_examples=30, deadline=None)
@given(costs, st.integers(1, 6), st.integers(1, 6))
def test_idle_shares_are_shares(drawn: StepCosts, engines: int, nodes: int) -> None:
    rollout = " ".join(f"{k % nodes}r{k}" for k in range(engines))
    places = layout(rollout=rollout, judge="0j", actor="0a")
    found = predict(drawn, places, Network())
    assert all(-1e-6 <= share <= 1 for share in (*found.idle.values(), found.devices_idle))


LARGE = StepCosts(
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


def test_a_single_device_holds_everything() -> None:
    (only,) = plan_step(LARGE, 1, 1, Network())
    assert (only.placement, only.best) == ("co-located", True)
    whole = sum(cost.seconds(64) for cost in LARGE.stages.values())
    assert only.prediction.seconds == pytest.approx(whole + 0.5 + 0.25)


def test_the_best_split_of_four_devices_is_the_best_of_all_splits() -> None:
    """Every split, simulated here again."""
    net = Network()
    plans = {plan.placement: plan for plan in plan_step(LARGE, 2, 2, net)}
    best = plans["dedicated"]
    assert sum(best.processes.values()) == best.devices == 4
    assert best.processes == {"rollout": 2, "judge": 1, "actor": 1}
    devices = [Place(k // 2, str(k)) for k in range(4)]
    tried = [
        predict(
            LARGE,
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
    plans = plan_step(LARGE, 32, 8, Network())
    assert all(plan.processes["rollout"] <= 64 >= plan.processes["judge"] for plan in plans)
    assert {plan.devices for plan in plans} == {256}

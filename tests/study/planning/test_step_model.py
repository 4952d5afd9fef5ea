"""The model of a step against sums worked out by hand, and against the bounds of any schedule."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refblend.study.planning.step_model import (
    Interval,
    Network,
    Place,
    StageCost,
    StepCosts,
    Task,
    exchange_seconds,
    predict,
    shares,
    simulate,
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


def test_tasks_on_one_device_share_it() -> None:
    # a and b run at half speed until 2, when a is done; b has 2 of its 3 left and ends at 4.
    # c begins with a's end on a device of its own.
    tasks = [Task("a", 1, "x"), Task("b", 3, "x"), Task("c", 5, "y", after=("a",))]
    assert simulate(tasks, {}) == {"a": Interval(0, 2), "b": Interval(0, 4), "c": Interval(2, 7)}


def test_a_device_with_room_for_more_slows_nobody_until_it_is_full() -> None:
    # Capacity 1.5: three tasks get half each, two 0.75, one 1. a ends at 2; b, with 0.5 left, after
    # 2/3 more; c has then 3 - 1 - 0.5 = 1.5 left.
    tasks = [Task("a", 1, "x"), Task("b", 1.5, "x"), Task("c", 3, "x")]
    found = simulate(tasks, {"x": 1.5})
    assert [found[name].end for name in "abc"] == pytest.approx([2, 2 + 2 / 3, 2 + 2 / 3 + 1.5])


def test_tasks_that_wait_for_one_another_are_refused() -> None:
    with pytest.raises(ValueError, match="never begin"):
        simulate([Task("a", 1, after=("b",)), Task("b", 1, after=("a",))], {})


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
graphs = st.lists(
    st.tuples(works, st.sampled_from("xyz"), st.lists(st.integers(0, 11), max_size=3)),
    min_size=1,
    max_size=12,
)


@given(graphs, st.floats(0.5, 4))
def test_the_makespan_lies_between_its_bounds(
    drawn: list[tuple[float, str, list[int]]], capacity: float
) -> None:
    """Not before the critical path, not before each device's work is done, not after the sum."""
    tasks = [
        Task(str(i), work, device, tuple({str(j) for j in before if j < i}))
        for i, (work, device, before) in enumerate(drawn)
    ]
    found = simulate(tasks, dict.fromkeys("xyz", capacity))
    end = max(interval.end for interval in found.values())
    path: dict[str, float] = {}
    for task in tasks:
        path[task.name] = task.seconds + max((path[name] for name in task.after), default=0.0)
    work = {d: sum(t.seconds for t in tasks if t.device == d) for d in "xyz"}
    slack = 1 + 1e-6
    assert end * slack >= max(path.values())
    assert end * slack >= max(work.values()) / capacity
    assert end <= sum(work.values()) / min(1.0, capacity) * slack
    for task in tasks:
        assert all(found[name].end <= found[task.name].start for name in task.after)


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


@settings(max_examples=30)
@given(costs, st.integers(1, 12), st.sampled_from(["rollout", "judge", "actor"]))
def test_another_process_on_a_device_of_its_own_never_takes_longer(
    drawn: StepCosts, count: int, role: str
) -> None:
    def seconds(number: int) -> float:
        own = {r: "0" + r for r in ("rollout", "judge", "actor")}
        own[role] = " ".join(f"0{role}{k}" for k in range(number))
        return predict(drawn, layout(**own), FREE).seconds

    assert seconds(count + 1) <= seconds(count) * (1 + 1e-6)


@settings(max_examples=30)
@given(costs, st.integers(1, 6), st.integers(1, 6))
def test_idle_shares_are_shares(drawn: StepCosts, engines: int, nodes: int) -> None:
    rollout = " ".join(f"{k % nodes}r{k}" for k in range(engines))
    places = layout(rollout=rollout, judge="0j", actor="0a")
    found = predict(drawn, places, Network())
    assert all(-1e-6 <= share <= 1 for share in (*found.idle.values(), found.devices_idle))

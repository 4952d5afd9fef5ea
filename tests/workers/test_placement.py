"""Processes on nodes: whatever is accepted fits, checked by counting and by brute force."""

from collections import Counter
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refblend.workers.placement import GIB, Bundle, Node, place, refusal, table

STRATEGIES = ("pack", "spread", "strict_pack")


def bundle(role: str, cpus=1.0, gpus=0.0, memory=0.0, node=None) -> Bundle:
    return Bundle(role, cpus, gpus, "a.key", node, memory)


def node(address: str, cpus=4.0, gpus=0.0, memory=8 * GIB, **more) -> Node:
    return Node(f"id-{address}", address, cpus, gpus, memory, GIB, **more)


def placed(bundles, nodes, strategy="pack"):
    found = place({"pool": bundles}, {"pool": strategy}, nodes)
    return None if found is None else found["pool"]


def fits_devices(shares: list[float], devices: int) -> bool:
    """Whether shares of GPUs fit whole devices, by trying every assignment."""
    whole = sum(round(share) for share in shares if share >= 1)
    parts = [share for share in shares if 0 < share < 1]
    for where in product(range(max(0, devices - whole)), repeat=len(parts)):
        loads = Counter()
        for device, share in zip(where, parts, strict=True):
            loads[device] += share
        if all(load <= 1 + 1e-6 for load in loads.values()):
            return whole <= devices
    return False


amounts = st.builds(
    bundle,
    st.sampled_from(["actor", "rollout", "judge"]),
    cpus=st.sampled_from([0.0, 0.5, 1.0, 2.0]),
    gpus=st.sampled_from([0.0, 0.0, 0.4, 0.6, 1.0, 2.0]),
    memory=st.integers(0, 4).map(lambda n: n * GIB),
    node=st.sampled_from([None, None, None, "n0", "n1", "fast", "rack=b"]),
)
machines = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 2), st.integers(0, 8), st.booleans()),
    min_size=1,
    max_size=3,
).map(
    lambda found: [
        node(
            f"n{i}",
            float(cpus),
            float(gpus),
            gib * GIB,
            labels={"rack": "b" if special else "a"},
            custom=frozenset({"fast"} if special else ()),
        )
        for i, (cpus, gpus, gib, special) in enumerate(found)
    ]
)
pools = st.fixed_dictionaries(
    {"one": st.lists(amounts, max_size=4), "two": st.lists(amounts, max_size=2)}
)


def is_possible(asked, strategies, nodes, where) -> bool:
    """Whether an assignment, a node for each process of each pool, keeps every rule."""
    for name, bundles in asked.items():
        if strategies[name] == "strict_pack" and len(set(where[name])) > 1:
            return False
        for wanted, index in zip(bundles, where[name], strict=True):
            own = nodes[index]
            called = {None, own.address, f"rack={own.labels['rack']}", *own.custom}
            if wanted.node not in called:
                return False
    for index, own in enumerate(nodes):
        here = [b for n in asked for b, i in zip(asked[n], where[n], strict=True) if i == index]
        if sum(b.cpus for b in here) > own.cpus + 1e-6:
            return False
        if sum(b.memory for b in here) > own.memory:
            return False
        if not fits_devices([b.gpus for b in here], int(own.gpus)):
            return False
    return True


@settings(max_examples=100, deadline=None)
@given(pools, st.sampled_from(STRATEGIES), st.sampled_from(STRATEGIES), machines)
def test_what_is_accepted_fits_and_what_is_refused_does_not(asked, one, two, nodes) -> None:
    strategies = {"one": one, "two": two}
    found = place(asked, strategies, nodes)
    if found is not None:
        assert {n: len(where) for n, where in found.items()} == {
            n: len(b) for n, b in asked.items()
        }
        assert is_possible(asked, strategies, nodes, found)
        return
    assert "asked of each" in str(refusal(asked, strategies, nodes))
    first, second = len(asked["one"]), len(asked["two"])
    for where in product(range(len(nodes)), repeat=first + second):
        split = {"one": where[:first], "two": where[first:]}
        assert not is_possible(asked, strategies, nodes, split)


def test_pack_fills_a_node_before_the_next() -> None:
    assert placed([bundle("actor")] * 6, [node("a"), node("b"), node("c")]) == [0, 0, 0, 0, 1, 1]


def test_spread_takes_turns_and_neighbouring_ranks_stay_together() -> None:
    assert placed([bundle("actor")] * 4, [node("a"), node("b")], "spread") == [0, 0, 1, 1]


def test_strict_pack_goes_where_all_fit() -> None:
    nodes = [node("a", cpus=2.0), node("b", cpus=4.0)]
    assert placed([bundle("actor")] * 3, nodes, "strict_pack") == [1, 1, 1]
    assert placed([bundle("actor")] * 5, nodes, "strict_pack") is None


def test_what_is_pinned_goes_first() -> None:
    """Taken in order, the actor would fill the only node that the judge may have."""
    nodes = [node("a", cpus=1.0, custom=frozenset({"judges"})), node("b", cpus=1.0)]
    assert placed([bundle("actor"), bundle("judge", node="judges")], nodes) == [1, 0]


def test_a_node_is_called_by_address_label_or_resource() -> None:
    nodes = [node("a"), node("b", labels={"rack": "2"}, custom=frozenset({"fast"}))]
    for name in ("b", "rack=2", "fast"):
        assert placed([bundle("judge", node=name)], nodes) == [1]
    for name in ("rack", "rack=3", "slow"):
        assert placed([bundle("judge", node=name)], nodes) is None


def test_a_large_cluster_is_placed_at_once() -> None:
    nodes = [node(f"n{i:02d}", cpus=32.0, gpus=8.0, memory=1000 * GIB) for i in range(64)]
    asked = [bundle("actor", gpus=1.0)] * 384 + [bundle("rollout", gpus=8.0)] * 16
    found = placed(asked, nodes)
    assert Counter(found[:384]) == dict.fromkeys(set(found[:384]), 8)
    assert len(set(found[:384])) == 48
    assert len(set(found[384:])) == 16


def test_nodes_with_a_small_object_store_are_not_used() -> None:
    nodes = [node("a"), Node("id-b", "b", 4.0, 0.0, 8 * GIB, 3 * GIB)]
    assert place({"pool": [bundle("actor")]}, {"pool": "pack"}, nodes, 2 * GIB) == {"pool": [1]}


def test_a_refusal_names_the_node_that_is_not_there() -> None:
    pool = {"pool": [bundle("judge", node="10.0.0.7")]}
    error = refusal(pool, {"pool": "pack"}, [node("10.0.0.6")])
    assert "judge is to run on node 10.0.0.7, which is not in the cluster" in error.reason
    assert error.remedy.startswith("Name one of 10.0.0.6, or")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_table_shows_what_there_is_and_what_is_asked(strategy) -> None:
    nodes = [node("10.0.0.6", gpus=2.0, labels={"rack": "b", "ray.io/node-id": "0f"})]
    shown = table({"pool": [bundle("actor", gpus=1.0)] * 3}, {"pool": strategy}, nodes, GIB)
    assert [line.split() for line in shown.splitlines()] == [
        ["node", "CPUs", "GPUs", "memory", "GiB", "object", "store", "GiB", "labels,", "resources"],
        ["10.0.0.6", "4", "2", "8.0", "1.0", "rack=b"],
        ["asked", "of", "each", "1.0", "pool", "(strategy),", "node"],
        f"3 x actor 1 1 0.0 pool ({strategy}), any node".split(),
    ]

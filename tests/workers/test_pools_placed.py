"""Pools on the nodes of a cluster that changes: what is refused, waited for, and told to Ray."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from refblend.errors import ResourceError
from refblend.workers import pools
from refblend.workers.placement import GIB, Node
from refblend.workers.pools import ResourcePools
from refblend.workers.restarts import WorkerDiedError

A = Node("id-a", "10.0.0.1", 2.0, memory=100 * GIB, object_store=GIB)
B = Node("id-b", "10.0.0.2", 1.0, memory=100 * GIB, object_store=GIB)
"""Together they hold the three processes of a plain run, neither does alone."""


class Clock:
    """Time passes only in sleep."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(pools, "time", found)
    return found


@pytest.fixture
def reserved(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What Ray was asked to reserve."""
    asked: list[dict[str, Any]] = []

    class Group:
        def wait(self, timeout_s: float) -> bool:
            return True

    def placement_group(bundles: list[Any], **how: Any) -> Group:
        asked.append({"bundles": bundles} | how)
        return Group()

    monkeypatch.setattr(pools, "placement_group", placement_group)
    return asked


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Callable[..., None]:
    """``cluster(total, left)``: what there is, and what is left, as functions of time."""

    def install(
        total: Callable[[float], list[Node]], left: Callable[[float], list[Node]] | None = None
    ) -> None:
        busy = left or total
        monkeypatch.setattr(
            pools, "alive_nodes", lambda left=False: (busy if left else total)(clock.now)
        )

    return install


def test_ray_is_told_the_node_of_every_process(tiny_config, cluster, reserved) -> None:
    cluster(lambda now: [A, B])
    found = ResourcePools(
        tiny_config("actor_rollout_ref.actor.node=10.0.0.2", "ray.address=10.0.0.1:6399")
    )
    (asked,) = reserved
    assert asked["strategy"] == "PACK"
    nodes = [selector["ray.io/node-id"] for selector in asked["bundle_label_selector"]]
    assert nodes == ["id-b", "id-a", "id-a"], "actor, rollout, judge"
    assert asked["bundles"] == [{"CPU": 1.0}] * 3
    assert len(found.places("judge")) == 1


def test_a_run_that_does_not_fit_is_refused_at_once(tiny_config, cluster, reserved, clock) -> None:
    cluster(lambda now: [A, replace(B, cpus=0.0)])
    with pytest.raises(ResourceError, match="do not fit the 2 nodes") as caught:
        ResourcePools(tiny_config("ray.address=10.0.0.1:6399"))
    assert "1 x judge" in caught.value.remedy
    assert clock.now == 0.0
    assert reserved == []


def test_a_run_that_has_lost_a_node_waits_for_it(tiny_config, cluster, reserved, clock) -> None:
    cluster(lambda now: [A, B] if now >= 60 else [A, replace(B, cpus=0.0)])
    ResourcePools(tiny_config("ray.address=10.0.0.1:6399"), wait_s=100.0)
    assert 60 <= clock.now < 62
    assert len(reserved) == 1


def test_of_two_nodes_the_one_that_is_left_waits_too(
    tiny_config, cluster, reserved, clock, monkeypatch
) -> None:
    """Though it alone would be refused: Ray no longer counts the lost one's resources."""
    monkeypatch.setattr(pools.ray, "cluster_resources", lambda: {"CPU": 2.0})
    cluster(lambda now: [A, B] if now >= 60 else [A])
    ResourcePools(tiny_config("ray.address=10.0.0.1:6399"), wait_s=100.0)
    assert 60 <= clock.now < 62
    assert len(reserved) == 1


def test_a_node_that_stays_away_ends_the_wait(tiny_config, cluster, reserved, clock) -> None:
    cluster(lambda now: [replace(A, cpus=1.0), B])
    with pytest.raises(ResourceError, match="do not fit the 2 nodes"):
        ResourcePools(tiny_config("ray.address=10.0.0.1:6399"), wait_s=100.0)
    assert 100 <= clock.now < 102
    assert reserved == []


def test_a_busy_cluster_is_waited_for_until_the_start_s_deadline(
    tiny_config, cluster, reserved, clock
) -> None:
    busy = replace(A, cpus=0.0)
    config = tiny_config("ray.address=10.0.0.1:6399", "ray.start_timeout_s=30")
    cluster(lambda now: [A, B], lambda now: [A, B] if now >= 10 else [busy, B])
    ResourcePools(config)
    assert 10 <= clock.now < 12
    clock.now = 0.0
    cluster(lambda now: [A, B], lambda now: [busy, B])
    with pytest.raises(ResourceError, match="do not fit the 2 nodes of the cluster at present"):
        ResourcePools(config)
    assert 30 <= clock.now < 32
    assert len(reserved) == 1


def test_nothing_starts_again_on_a_node_that_is_gone(tiny_config, cluster, reserved) -> None:
    """Ray would keep the process waiting for the node until the start's deadline."""
    alive = [A, B]
    cluster(lambda now: alive)
    found = ResourcePools(
        tiny_config("actor_rollout_ref.rollout.node=10.0.0.2", "ray.address=10.0.0.1:6399")
    )
    assert [place.node.id for place in found.places("rollout")] == ["id-b"]
    alive.remove(B)
    with pytest.raises(WorkerDiedError, match=r"the rollout worker died: its node 10\.0\.0\.2 is"):
        found.places("rollout")
    assert found.places("actor"), "those on other nodes may go on"

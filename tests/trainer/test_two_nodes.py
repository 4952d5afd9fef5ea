"""Runs on two Ray nodes, each in a network namespace of this machine: `make nodes`."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

REFUSAL = (
    (os.environ.get("REFBLEND_NODES") != "1" and "called by `make nodes`")
    or (os.geteuid() != 0 and "network namespaces need root")
    or (shutil.which("ip") is None and "iproute2 is missing (`ip`)")
)
pytestmark = [
    pytest.mark.engine,
    pytest.mark.slow,
    pytest.mark.skipif(bool(REFUSAL), reason=str(REFUSAL)),
]

SCRIPT = Path(__file__).parents[2] / "scripts" / "two_nodes.sh"
FSDP = "actor_rollout_ref.actor.fsdp_config"
TWO_NODES = (
    "ray.address=10.77.0.1:6399",
    "actor_rollout_ref.actor.node=node_a",
    "actor_rollout_ref.rollout.node=node_a",
    "algorithm.ref_quality_score.scoring.node=10.77.0.2",
)


class Nodes:
    """The two nodes, and commands on node a."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, what: str, *arguments: str, **variables: str) -> None:
        environment = os.environ | {"RAY": str(Path(sys.executable).with_name("ray"))} | variables
        command = ["bash", SCRIPT, what, self.folder, *arguments]
        subprocess.run(command, check=True, env=environment, timeout=180)

    def start(self, run) -> "subprocess.Popen[str]":
        """The run's command inside node a's namespace, with the cluster's token."""
        run.prefix = ["bash", str(SCRIPT), "run", str(self.folder)]
        return run.start()

    def complete(self, run) -> str:
        ended = run.finish(self.start(run))
        assert ended.status == 0, ended.output
        return ended.output

    def workers(self) -> set[tuple[str, str]]:
        """Node and class of every worker process; Ray puts the class into the title."""
        found = set()
        for node in "ab":
            listed = ["ip", "netns", "pids", f"refblend-{node}"]
            for pid in subprocess.run(
                listed, check=True, capture_output=True, text=True
            ).stdout.split():
                with contextlib.suppress(OSError):
                    title = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
                    if title.startswith("ray::") and "Worker" in title:
                        found.add((node, re.split(r"[:.\0]+", title)[1]))
        return found


@pytest.fixture(scope="module")
def nodes():
    folder = Path(tempfile.mkdtemp(prefix="nodes-", dir="/tmp"))
    found = Nodes(folder)
    try:
        found("up")
        yield found
    finally:
        found("down")
        shutil.rmtree(folder)


@contextlib.contextmanager
def watched(nodes: Nodes) -> Iterator[set[tuple[str, str]]]:
    """The worker processes that are seen while the block lasts."""
    seen: set[tuple[str, str]] = set()
    over = threading.Event()

    def watch() -> None:
        while not over.wait(1.0):
            seen.update(nodes.workers())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield seen
    finally:
        over.set()
        watcher.join()


def test_the_judge_on_the_other_node_changes_no_number(nodes, make_run, undisturbed):
    run = make_run(*TWO_NODES)
    nodes.complete(run)
    run.assert_same(undisturbed)


def test_ranks_and_engines_on_both_nodes_give_the_numbers_of_one_node(nodes, make_run, undisturbed):
    """Bit for bit where the batch is cut the same; with one rank sums are rounded differently."""
    cut = (f"{FSDP}.world_size=2",)
    alone = make_run(*cut)
    alone.complete()
    run = make_run(
        *cut,
        "ray.address=10.77.0.1:6399",
        "ray.shared_filesystem=true",
        "ray.pool_strategy.global_pool=spread",
        "actor_rollout_ref.rollout.num_engines=2",
        "algorithm.ref_quality_score.scoring.resource_pool=judge_pool",
        "algorithm.ref_quality_score.scoring.node=10.77.0.2",
    )
    with watched(nodes) as seen:
        nodes.complete(run)
    on_both = {(node, name) for node in "ab" for name in ("ActorWorker", "RolloutWorker")}
    assert on_both | {("b", "JudgeWorker")} <= seen
    assert ("a", "JudgeWorker") not in seen
    run.assert_same(alone)
    first, other = run.metrics()[1], undisturbed.metrics()[1]
    assert first == pytest.approx(other, rel=1e-4, abs=1e-6)
    shards = run.directory / "checkpoints" / "global_step_4" / "actor" / "optimizer"
    assert sorted(p.name for p in shards.iterdir()) == [".metadata", "__0_0.distcp", "__1_0.distcp"]
    # As a kill after step 3 would leave it.
    shutil.rmtree(run.directory / "checkpoints" / "global_step_4")
    (run.directory / "summary.json").unlink()
    assert "resumed from step 2" in nodes.complete(run)
    run.assert_same(alone)


def test_a_node_that_is_killed_and_returns_changes_no_number(nodes, make_run, undisturbed):
    """With the rollout engine and the judge, which start again once it is back."""
    run = make_run(*TWO_NODES, "actor_rollout_ref.rollout.node=10.77.0.2")
    process = nodes.start(run)
    recorded = run.directory / "metrics.jsonl"
    while process.poll() is None and not (
        recorded.exists() and len(recorded.read_text().splitlines()) > 2
    ):
        time.sleep(0.1)
    nodes("stop", "b")
    time.sleep(5)
    nodes("start", "b")
    ended = run.finish(process)
    assert ended.status == 0, ended.output
    run.assert_same(undisturbed)

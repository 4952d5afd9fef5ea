"""Runs on two Ray nodes, each in a network namespace of this machine: `make nodes`."""

import os
import shutil
import subprocess
import sys
import tempfile
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

    def __call__(self, what: str, *arguments: str) -> None:
        environment = os.environ | {"RAY": str(Path(sys.executable).with_name("ray"))}
        command = ["bash", SCRIPT, what, self.folder, *arguments]
        subprocess.run(command, check=True, env=environment, timeout=180)

    def start(self, run, *overrides: str) -> "subprocess.Popen[str]":
        """The run's command inside node a's namespace, with the cluster's token."""
        command = [
            "bash",
            SCRIPT,
            "run",
            self.folder,
            Path(sys.executable).with_name("refblend"),
            "train",
            "--config",
            run.config_file,
            f"trainer.default_local_dir={run.directory.name}",
            *run.overrides,
            *overrides,
        ]
        here = str(Path(__file__).parent)
        paths = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH", "")]))
        run.directory.parent.mkdir(parents=True, exist_ok=True)
        return subprocess.Popen(
            command,
            cwd=run.directory.parent,  # paths are the driver's, and relative ones too
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | {"PYTHONPATH": paths, "SABOTEUR_RUN": str(run.directory)},
        )

    def train(self, run, *overrides: str):
        return run.finish(self.start(run, *overrides))


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    folder = Path(tempfile.mkdtemp(prefix="nodes-", dir="/tmp"))
    found = Nodes(folder)
    try:
        found("up")
        yield found
    finally:
        found("down")
        shutil.rmtree(folder)


def assert_same(run, other) -> None:
    assert run.canonical_lines() == other.canonical_lines()
    assert run.weights(4) == other.weights(4)


def test_the_judge_on_the_other_node_changes_no_number(nodes, make_run, undisturbed) -> None:
    run = make_run(*TWO_NODES)
    ended = nodes.train(run)
    assert ended.status == 0, ended.output
    assert_same(run, undisturbed)


def test_a_plan_that_does_not_fit_shows_what_each_node_has(nodes, make_run) -> None:
    run = make_run(*TWO_NODES, f"{FSDP}.world_size=9")
    ended = nodes.train(run)
    assert ended.status == 2, ended.output
    assert "error: the run's processes do not fit the 2 nodes" in ended.output
    assert "9 x actor" in ended.output
    assert "10.77.0.2" in ended.output
    assert "Traceback" not in ended.output

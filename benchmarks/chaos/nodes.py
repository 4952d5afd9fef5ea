"""``make chaos-nodes``: faults of nodes and cables, on two Ray nodes of this machine; needs root.

A run of scale smoke is hit when it enters a stage of step 3 (the checkpoint: of step 4), and then
goes on, or stops with status 2 and is finished by the same command once the cluster is whole again.
Its metrics and weights must be those of a run on one node that nothing disturbs. Engines are those
of Hugging Face, which start faster. Ray's health check is shortened: a node that cannot be reached
is given up after 12 s, not after a minute. The slow cable is `scripts/slow_cable.py`: `tc netem` is
a module of the kernel, which many machines, the one measured here too, do not have.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from chaos.runs import ROOT, Run

SCRIPT = ROOT / "scripts" / "two_nodes.sh"
HANG_S = 400
SOON = {
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "3000",
    "RAY_health_check_failure_threshold": "3",
    "CPUS": "6",
}
ENGINES = (
    "actor_rollout_ref.rollout.name=hf",
    "algorithm.ref_quality_score.scoring.kind=hf",
)
_WORKERS = "refblend.workers.worker_set:WorkerSet"
MOMENTS = {
    "generate": (f"{_WORKERS}.generate", 5),
    "score": (f"{_WORKERS}.judge_responses", 3),
    "update": (f"{_WORKERS}.update", 3),
    "checkpoint": (f"{_WORKERS}.save", 2),
    "push": (f"{_WORKERS}.push_weights", 3),
}
"""The call of the driver that begins a stage, and which of its calls: two go to validations."""
ON_B = (
    "actor_rollout_ref.actor.node=10.77.0.2",
    "actor_rollout_ref.rollout.node=10.77.0.2",
    "algorithm.ref_quality_score.scoring.node=10.77.0.2",
)
"""Actor, rollout engine and judge on the node that is hit."""
SPREAD = ("ray.pool_strategy.global_pool=spread",)
"""Rollout engine and judge on the node that is hit, which one node alone could hold as well."""
NO_ROOM = (*SPREAD, "ray.cpus_per_worker=2")
"""The same, but one node alone is too small."""


class Nodes:
    """The two nodes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *what: str) -> None:
        """A command of ``scripts/two_nodes.sh``."""
        name, *rest = what
        environment = os.environ | SOON | {"RAY": str(Path(sys.executable).with_name("ray"))}
        command = ["bash", str(SCRIPT), name, str(self.folder), *rest]
        subprocess.run(command, check=True, env=environment, timeout=180, capture_output=True)

    def repair(self) -> None:
        """Bring both nodes back, whatever happened to them."""
        self("cable", "fast")
        self("cable", "up")
        for node in "ba":
            self("stop", node)
        for node in "ab":
            self("start", node)

    def end_head(self) -> None:
        """Kill Ray's head service, not its node."""
        listed = ["ip", "netns", "pids", "refblend-a"]
        for pid in subprocess.check_output(listed, text=True).split():
            with contextlib.suppress(OSError):  # it has ended meanwhile
                program = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]
                if program.endswith(b"gcs_server"):
                    os.kill(int(pid), signal.SIGKILL)


def killed_and_back(nodes: Nodes) -> None:
    """A node loses power, and is back soon."""
    nodes("stop", "b")
    time.sleep(5)
    nodes("start", "b")


def cut(nodes: Nodes) -> None:
    """The cable is pulled for a moment."""
    nodes("cable", "down")
    time.sleep(3)
    nodes("cable", "up")


FAULTS: dict[str, tuple[Callable[[Nodes], None], tuple[str, ...]]] = {
    "node killed, back after 5 s": (killed_and_back, ON_B),
    "cable down for 3 s": (cut, ON_B),
    "node killed for good, room on the other": (lambda nodes: nodes("stop", "b"), SPREAD),
    "cable down for good, room on the other": (lambda nodes: nodes("cable", "down"), SPREAD),
    "node killed for good, no room": (lambda nodes: nodes("stop", "b"), NO_ROOM),
    "cable down for good, no room": (lambda nodes: nodes("cable", "down"), NO_ROOM),
    "head service killed": (Nodes.end_head, ON_B),
    "cable slow, 40 ms and 1 % loss": (lambda nodes: nodes("cable", "slow"), SPREAD),
}
"""What is done, and the placement of the run."""


@dataclass(frozen=True)
class Case:
    """One injection."""

    fault: str
    moment: str


def cases() -> Iterator[Case]:
    """Every fault at every moment; those of the first round, which has each once, come first."""
    moments = list(MOMENTS)
    for shift in range(len(moments)):
        for i, fault in enumerate(FAULTS):
            yield Case(fault, moments[(i + shift) % len(moments)])


def strike(case: Case, nodes: Nodes, directory: Path, expected: tuple[list[str], bytes]) -> Any:
    """Inject the fault into a fresh run.

    Returns:
        ``outcome``, ``seconds`` of the first call, its ``status`` and, unless 0, its ``message``.

    Raises:
        AssertionError: a promise of docs/explanation/reliability.md is broken.
    """
    run, (hit, placement) = Run(directory), FAULTS[case.fault]
    flag = directory.parent / "flag"
    flag.mkdir(parents=True)
    target, call = MOMENTS[case.moment]
    sabotage = {
        "SABOTAGE": target,
        "SABOTAGE_CALLS": str(call),
        "SABOTAGE_FAULT": "tell",
        "SABOTAGE_FOLDER": str(flag),
        "PYTHONPATH": os.pathsep.join(
            [str(ROOT / "tests" / "trainer" / "sabotage_workers"), os.environ.get("PYTHONPATH", "")]
        ),
    }
    begun = time.monotonic()
    process = start(nodes, run, placement, **sabotage)
    while process.poll() is None and not (flag / "now").exists():
        time.sleep(0.02)
    assert process.poll() is None, f"ended before it was hit: {process.communicate()[0][-2000:]}"
    hit(nodes)
    status, output = finish(process)
    row = {"status": status, "seconds": round(time.monotonic() - begun, 1), "outcome": "went on"}
    damaged = run.damaged_checkpoints()
    assert not damaged, damaged
    assert "Traceback" not in output, output[-3000:]
    if status:
        last = output.strip().splitlines()[-1]
        error = next((x for x in output.splitlines() if x.startswith("error: ")), "")
        assert status == 2, f"status {status}: {output[-1500:]}"
        assert error, f"none of our errors: {last}"
        nodes.repair()
        again, output = finish(start(nodes, run, placement))
        assert again == 0, f"the next call ends with {again}: {output[-1500:]}"
        row |= {"outcome": "resumed", "message": error}
    metrics, weights = run.result()
    assert metrics == expected[0], "the metrics differ from the undisturbed run's"
    assert weights == expected[1], "the weights differ from the undisturbed run's"
    return row


def start(
    nodes: Nodes, run: Run, more: tuple[str, ...], **variables: str
) -> "subprocess.Popen[str]":
    """The run's command on node a."""
    nodes_run = ["bash", str(SCRIPT), "run", str(nodes.folder)]
    deadlines = ("ray.wait_for_nodes_s=25", "ray.start_timeout_s=120", "ray.address=10.77.0.1:6399")
    return run.start(*ENGINES, *deadlines, *more, before=nodes_run, **variables)  # type: ignore[arg-type]


def finish(process: "subprocess.Popen[str]") -> tuple[int, str]:
    """Status and output of a call.

    Raises:
        AssertionError: it hangs.
    """
    try:
        output, _ = process.communicate(timeout=HANG_S)
    except subprocess.TimeoutExpired:
        raise AssertionError(f"hangs: no end within {HANG_S} s") from None
    finally:
        process.kill()
    return process.returncode, output


def main(
    minutes: Annotated[float, typer.Option(help="Begin no case after this time.")] = 1e9,
    fresh: Annotated[bool, typer.Option(help="Forget what the results have already.")] = False,
) -> None:
    """Inject faults that the results do not have yet; exit status 1 if one failed."""
    from common import RESULTS, record, work_tree  # loads torch

    deadline = time.monotonic() + 60 * minutes
    folder = Path(tempfile.mkdtemp(prefix="nodes-", dir="/tmp"))
    file = RESULTS / "nodes.json"
    old = [] if fresh or not file.exists() else json.loads(file.read_text())["figures"]["cases"]
    rows = {Case(row["fault"], row["moment"]): row for row in old}
    undisturbed = Run(folder / "undisturbed" / "seed_1")
    ended = undisturbed.train(*ENGINES)
    assert ended.status == 0, ended.output
    nodes = Nodes(folder)
    try:
        nodes("up")
        for number, case in enumerate(cases()):
            known = case in rows and rows[case]["outcome"] != "failed"
            if known or time.monotonic() > deadline:
                continue
            directory = folder / str(number) / "seed_1"
            row = asdict(case) | {"commit": work_tree()["commit"]}
            try:
                row |= strike(case, nodes, directory, undisturbed.result())
            except AssertionError as error:
                row |= {"outcome": "failed", "message": str(error)}
            print(row, flush=True)
            rows[case] = row
            found = [rows[known] for known in cases() if known in rows]
            good = sum(row["outcome"] != "failed" for row in found)
            record("nodes", "faults of nodes survived", good, len(found), {"cases": found})
            nodes.repair()
    finally:
        nodes("down")
        shutil.rmtree(folder)
    sys.exit(any(row["outcome"] == "failed" for row in rows.values()))


if __name__ == "__main__":
    assert Path.cwd() == ROOT, "call it from the repository's root"
    typer.run(main)

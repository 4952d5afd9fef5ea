"""The model behind `refblend plan-step` against runs with one and two engines and nodes.

`python benchmarks/bench_planning.py` measures two short runs at scale cpu, one process at work at a
time and with whole and half batches: these are all costs that the model gets, with what two busy
cores do together (two processes, one after another and at once). Then it measures runs that it
predicted: judge and passes side by side, two rollout engines, and, as root, both on two Ray nodes
in network namespaces (`scripts/two_nodes.sh`). All nodes share this machine's cores, so the
model has them as one device. Responses have a fixed length, so that steps are alike. A folder as
an argument keeps the runs, and the next call makes only those that are missing.
"""

import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import common
from bench_step import adamw, optimise

from refblend.config import load_config
from refblend.study.planning.step import Network, Place, StepCosts, predict
from refblend.study.planning.step_costs import WARM_UP, read_costs
from refblend.trainer.tracking import read_metrics
from refblend.workers.networks import load_policy

TWO_NODES = common.ROOT / "scripts" / "two_nodes.sh"
STEPS = 8
PROBES = 3
BATCH = 24
NETWORK = Network(inside=1.0, between=0.06)
"""GB/s. Between the namespaces an object of 100 MB took 1.3 to 2.4 s; inside nothing is sent."""
ROLLOUT = "actor_rollout_ref.rollout"
JUDGE = "algorithm.ref_quality_score.scoring"
ADDRESS = "10.77.0.1:6399"
NODES = [
    f"ray.address={ADDRESS}",
    "ray.pool_strategy.global_pool=spread",
    "actor_rollout_ref.actor.node=node_a",
    f"{JUDGE}.node=node_b",
]
CASES: dict[str, tuple[list[str], dict[str, list[int]]]] = {
    "one node, one engine": ([], {"rollout": [0], "judge": [0], "actor": [0]}),
    "one node, two engines": (
        [f"{ROLLOUT}.num_engines=2"],
        {"rollout": [0, 0], "judge": [0], "actor": [0]},
    ),
    "two nodes, one engine": (
        [*NODES, f"{ROLLOUT}.node=node_a"],
        {"rollout": [0], "judge": [1], "actor": [0]},
    ),
    "two nodes, two engines": (
        [*NODES, f"{ROLLOUT}.num_engines=2"],
        {"rollout": [0, 1], "judge": [1], "actor": [0]},
    ),
}
"""What a run is told, and the node of every process."""


def train(folder: Path, name: str, prompts: int, *settings: str) -> Path:
    """A short run's directory."""
    run = folder / name
    if (run / "summary.json").exists():
        return run
    configs = [argument for path in common.CONFIGS for argument in ("--config", str(path))]
    command: list[str | Path] = [Path(sys.executable).with_name("refblend"), "train", *configs]
    if f"ray.address={ADDRESS}" in settings:
        command = [
            "bash",
            common.ROOT / "scripts" / "two_nodes.sh",
            "run",
            folder / "nodes",
            *command,
        ]
    overrides = [
        *common.run_overrides(folder, run, STEPS),
        f"data.train_batch_size={prompts}",
        f"actor_rollout_ref.actor.ppo_mini_batch_size={prompts // 2}",
        "actor_rollout_ref.actor.optim.lr=0",
        f"{ROLLOUT}.n=4",
        f"{ROLLOUT}.ignore_eos=true",
        "trainer.save_freq=0",
        "trainer.rollout_dump_freq=0",
        "trainer.energy=false",
        "trainer.logger=[]",
        *settings,
    ]
    paths = [str(common.ROOT / "benchmarks"), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    subprocess.run([*command, *overrides], env=environment, stdout=subprocess.DEVNULL, check=True)
    return run


def step_seconds(run: Path) -> list[float]:
    """Wall time of every step after the first ones."""
    table = read_metrics(run / "metrics.jsonl")
    return [float(s) for s in table.loc[table["step"] > WARM_UP, "timing_s/step"]]


def probe(folder: Path) -> None:
    """In a process of its own: updates when told to, and their wall time."""
    config, policy = load_config(common.CONFIGS, []), load_policy(str(folder / "actor"), 1.0)
    sequences, optimiser = common.make_sequences(policy.lm.config.vocab_size), adamw(policy)
    for _ in sys.stdin:
        start = time.perf_counter()
        optimise(policy, optimiser, sequences, config)
        print(time.perf_counter() - start, flush=True)


def busy_cores(folder: Path) -> float:
    """What two processes get done together, as a multiple of what one does alone."""
    command = [sys.executable, __file__, "probe", str(folder)]
    pipe = subprocess.PIPE
    both = [subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe) for _ in range(2)]

    def seconds(*processes: "subprocess.Popen[str]") -> float:
        for process in processes:
            print("go", file=process.stdin, flush=True)
        times = [process.stdout.readline() for process in processes if process.stdout]
        return statistics.fmean(map(float, times))

    for process in both:
        seconds(process)  # warm-up
    rounds = [(seconds(both[0]), seconds(both[1]), seconds(*both)) for _ in range(PROBES)]
    for process in both:
        process.communicate()
    return statistics.median((first + second) / at_once for first, second, at_once in rounds)


def predicted(costs: StepCosts, nodes: Mapping[str, list[int]], cores: float) -> float:
    """Seconds of a step whose processes share the machine's cores."""
    layout = {role: [Place(node, "cores") for node in where] for role, where in nodes.items()}
    return predict(costs, layout, NETWORK, {"cores": cores}).seconds


def measure(folder: Path) -> tuple[StepCosts, float, dict[str, list[float]]]:
    """Costs, capacity of the cores, and the step times of every case that this machine can run."""
    serial = f"{JUDGE}.overlap=false"
    runs = [train(folder, f"serial_{size}", size, serial) for size in (BATCH, BATCH // 2)]
    cores = busy_cores(folder)
    cases = [(f"case_{k}", name, *case) for k, (name, case) in enumerate(CASES.items())]
    on_one = [case for case in cases if not needs_nodes(case[3])]
    steps = {name: step_seconds(train(folder, run, BATCH, *told)) for run, name, told, _ in on_one}
    if os.geteuid() == 0 and shutil.which("ip"):
        with two_nodes(folder / "nodes"):
            steps |= {
                name: step_seconds(train(folder, run, BATCH, *told))
                for run, name, told, where in cases
                if needs_nodes(where)
            }
    return read_costs(runs), cores, steps


def needs_nodes(where: Mapping[str, list[int]]) -> bool:
    """Whether a process is on the second node."""
    return any(1 in nodes for nodes in where.values())


@contextlib.contextmanager
def two_nodes(folder: Path) -> Iterator[None]:
    """Two Ray nodes in namespaces of this machine."""
    os.environ["RAY"] = str(Path(sys.executable).with_name("ray"))
    try:
        subprocess.run(["bash", TWO_NODES, "up", folder], check=True)
        yield
    finally:
        subprocess.run(["bash", TWO_NODES, "down", folder], check=True)


def main(folder: Path) -> None:
    if not (folder / "data").exists():
        tokenizer = common.embedded_tokenizer()
        common.make_model(folder / "actor", tokenizer)
        common.make_model(folder / "judge", tokenizer, seed=1)
        common.prepare_data(folder)
    costs, cores, steps = measure(folder)
    cases: dict[str, dict[str, Any]] = {
        case: {"predicted": predicted(costs, CASES[case][1], cores), "measured": seconds}
        for case, seconds in steps.items()
    }
    ratios = {
        case: found["predicted"] / statistics.median(found["measured"])
        for case, found in cases.items()
    }
    common.show(
        f"seconds of a step; two busy cores do {cores:.2f} times the work of one",
        ["case", "predicted", "measured", "ratio"],
        [
            [case, found["predicted"], statistics.median(found["measured"]), ratios[case]]
            for case, found in cases.items()
        ],
    )
    common.record(
        "planning",
        "largest relative error of a predicted step",
        max(abs(ratio - 1) for ratio in ratios.values()),
        0.15,
        {"cases": cases, "ratios": ratios, "two_busy_cores": cores, "costs": asdict(costs)},
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["probe"]:
        probe(Path(sys.argv[2]))
    elif len(sys.argv) > 1:
        main(Path(sys.argv[1]).absolute())
    else:
        with tempfile.TemporaryDirectory() as name:
            main(Path(name))

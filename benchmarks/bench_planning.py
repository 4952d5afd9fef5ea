"""The model behind `refblend plan-step` against runs with one and two rollout engines.

`python benchmarks/bench_planning.py` trains two short runs at scale cpu, one process at work at a
time and with whole and half batches: these are all costs that the model gets, with what two busy
cores do together (two processes, one after another and at once). Then it trains runs that it
predicted, in which judge and passes work side by side. All processes share this machine's cores, so
the model has them as one device. Responses have a fixed length, so that steps are alike.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import common
import runs
from bench_step import adamw, optimise

from refblend.config import load_config
from refblend.study.planning.step import Network, Place, StepCosts, predict
from refblend.study.planning.step_costs import WARM_UP, read_costs
from refblend.trainer.tracking import read_metrics
from refblend.workers.networks import load_policy

STEPS = 8
PROBES = 3
BATCH = 24
ENGINES = "actor_rollout_ref.rollout.num_engines"
SERIAL = "algorithm.ref_quality_score.scoring.overlap=false"
GOAL = 0.15


def train(folder: Path, name: str, prompts: int, *settings: str) -> Path:
    """A short run's directory."""
    overrides = [
        *runs.overrides(folder, STEPS, name),
        f"data.train_batch_size={prompts}",
        f"actor_rollout_ref.actor.ppo_mini_batch_size={prompts // 2}",
        "actor_rollout_ref.rollout.n=4",
        "actor_rollout_ref.rollout.ignore_eos=true",
        *settings,
    ]
    if status := runs.start_training(overrides).wait():
        raise SystemExit(f"{name} failed with status {status}")
    return folder / name


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


def predicted(costs: StepCosts, engines: int, cores: float) -> float:
    """Seconds of a step whose processes share the machine's cores."""
    here = Place(0, "cores")
    layout = {"rollout": [here] * engines, "judge": [here], "actor": [here]}
    return predict(costs, layout, Network(), {"cores": cores}).seconds


def main(folder: Path) -> None:
    common.prepare_inputs(folder)
    costs = read_costs([train(folder, f"serial_{n}", n, SERIAL) for n in (BATCH, BATCH // 2)])
    cores = busy_cores(folder)
    cases: dict[str, dict[str, Any]] = {}
    for engines in (1, 2):
        settings = (f"{ENGINES}={engines}", SERIAL.replace("false", "true"))
        measured = step_seconds(train(folder, f"engines_{engines}", BATCH, *settings))
        guess = predicted(costs, engines, cores)
        ratio = guess / statistics.median(measured)
        cases[f"{engines} engines"] = {"predicted": guess, "measured": measured, "ratio": ratio}
    common.show(
        f"seconds of a step; two busy cores do {cores:.2f} times the work of one",
        ["case", "predicted", "measured", "ratio"],
        [
            [case, found["predicted"], statistics.median(found["measured"]), found["ratio"]]
            for case, found in cases.items()
        ],
    )
    common.record(
        "planning",
        "largest relative error of a predicted step",
        max(abs(found["ratio"] - 1) for found in cases.values()),
        GOAL,
        {"cases": cases, "two_busy_cores": cores, "costs": asdict(costs)},
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["probe"]:
        probe(Path(sys.argv[2]))
    else:
        with tempfile.TemporaryDirectory() as name:
            main(Path(name))

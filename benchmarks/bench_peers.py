"""Our GRPO step compared with TRL's GRPOTrainer on the same work, without a judge.

TRL needs a separate environment (its pins differ from ours)::

    make .tools/trl
    TRL_ENV=.tools/trl python benchmarks/bench_peers.py

Both train an actor of the embedded shape, after a short warm start, in float32 on the batches of
scale cpu (24 problems × 8 responses of at most 60 tokens), with two updates per batch, the same
clipping, no KL and one thread per process; TRL with the better of two micro-batch sizes. The
comparison covers response tokens per CPU second, over all processes of a trainer, and the learning
curves: mean reward of a batch (the share of digits) by tokens trained before it.
"""

import json
import os
import statistics
import subprocess
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import common
import numpy as np
from bench_step import WARM, overrides, run_training

from refblend.embedded.problems import generate_problems

LEARNING_RATE = 1e-4
NEW_TOKENS = 60
UPDATES = 2
MICRO_BATCHES = (32, 96)
"""Of the 96 responses of an update."""
BATCHES = 16
"""Of each learning curve; the smaller micro-batch of TRL, which is the slower, does but a few."""
FEW_BATCHES = 4
ROUNDS = 2
"""The trainers take turns, so that what disturbs the machine for minutes hits both."""


def run_ours(folder: Path, name: str) -> dict[str, list[float]]:
    """Seconds, response tokens and rewards of each step."""
    settings = [
        *overrides(folder, BATCHES),
        f"trainer.default_local_dir={folder}/{name}",
        f"actor_rollout_ref.actor.optim.lr={LEARNING_RATE}",
        "algorithm.ref_quality_score.enable=false",
    ]
    steps, lines = run_training(folder, settings, BATCHES, name)
    texts = [folder / name / "rollouts" / f"{n}.jsonl" for n in range(1, BATCHES + 1)]
    dumps = [[json.loads(row) for row in text.read_text().splitlines()] for text in texts]
    tokens = [float(sum(row["length"] for row in dump)) for dump in dumps]
    return {
        "cpu_seconds": [sum(spent.values()) for spent in steps],
        "wall_seconds": [line["timing_s/step"] for line in lines],
        "response_tokens": tokens[WARM : BATCHES - 1],
        "curve_tokens": tokens,
        "curve_reward": [statistics.fmean(row["reward"] for row in dump) for dump in dumps],
    }


def run_trl(python: Path, folder: Path, micro_batch: int, batches: int) -> dict[str, list[float]]:
    """The same for TRL; the times leave out the first batch."""
    job: dict[str, Any] = {
        "model": f"{folder}/actor",
        "threads": common.THREADS,
        "updates_per_batch": UPDATES,
        "prompts": common.PROMPTS,
        "group": common.GROUP,
        "questions": [p.question for p in generate_problems("train", 256, 1)],
        "output": f"{folder}/trl",
        "batches": batches,
        "micro_batch": micro_batch,
        "max_new_tokens": NEW_TOKENS,
        "lr": LEARNING_RATE,
    }
    file = folder / f"job_{micro_batch}.json"
    file.write_text(json.dumps(job))
    script = common.ROOT / "benchmarks" / "peer_trl.py"
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [python, script, file], capture_output=True, text=True, check=True, env=environment
    )
    found: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    return found


def throughput(runs: list[dict[str, list[float]]], clock: str) -> float:
    """Response tokens per second, median over the steps of all rounds."""
    return statistics.median(
        tokens / spent
        for run in runs
        for tokens, spent in zip(run["response_tokens"], run[clock], strict=True)
    )


def reward_after(run: dict[str, list[float]], tokens: float) -> float:
    """Mean batch reward after a number of trained tokens, linearly interpolated between batches."""
    trained = np.cumsum([0.0, *run["curve_tokens"][:-1]])
    return float(np.interp(tokens, trained, run["curve_reward"]))


def main() -> None:
    home = os.environ.get("TRL_ENV")
    if home is None:
        print("Not run: TRL_ENV does not name an environment with TRL; see this file's docstring.")
        return
    python = Path(home) / "bin" / "python"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        common.train_short_actor(folder / "actor", common.embedded_tokenizer())
        common.prepare_data(folder)
        runs: dict[str, list[dict[str, list[float]]]] = defaultdict(list)
        for number in range(ROUNDS):
            runs["refblend"].append(run_ours(folder, f"run_{number}"))
            for size in MICRO_BATCHES:
                batches = BATCHES if size == max(MICRO_BATCHES) else FEW_BATCHES
                found = run_trl(python, folder, size, batches)
                runs[f"TRL, micro-batch {size}"].append(found)
    rates = {
        label: {clock: throughput(of, clock) for clock in ("cpu_seconds", "wall_seconds")}
        for label, of in runs.items()
    }
    best = max(
        (label for label in rates if label != "refblend"), key=lambda k: rates[k]["cpu_seconds"]
    )
    ratios = {
        label: {clock: rate / rates[best][clock] for clock, rate in of.items()}
        for label, of in rates.items()
    }
    common.show(
        f"response tokens trained per second, as a ratio to {best}",
        ["trainer", "a CPU second", "a second of wall time"],
        [[k, v["cpu_seconds"], v["wall_seconds"]] for k, v in ratios.items()],
    )
    curves = [runs["refblend"][0], runs[f"TRL, micro-batch {max(MICRO_BATCHES)}"][0]]
    reach = min(sum(run["curve_tokens"][:-1]) for run in curves)
    points = [share * reach for share in (0.0, 0.25, 0.5, 0.75, 1.0)]
    rewards = {int(p): [reward_after(run, p) for run in curves] for p in points}
    common.show(
        "mean reward of a batch by response tokens trained",
        ["tokens", "refblend", "TRL"],
        [[tokens, *found] for tokens, found in rewards.items()],
    )
    common.record(
        "peers",
        "tokens trained per CPU second, as a ratio to TRL 1.16",
        ratios["refblend"]["cpu_seconds"],
        2.5,
        {"ratios": ratios, "runs": runs, "reward_after_tokens": rewards},
    )


if __name__ == "__main__":
    main()

"""Our GRPO step compared with TRL's GRPOTrainer on the same work, without a judge.

TRL needs a separate environment (its pins differ from ours)::

    make .tools/trl
    TRL_ENV=.tools/trl python benchmarks/bench_peers.py

Both train the actor that the committed runs started from, in float32 on the batches of
scale cpu (24 problems × 8 responses of at most 60 tokens), with two updates per batch, the same
clipping, no KL and one thread per process; TRL with the better of two micro-batch sizes. The
comparison covers response tokens per CPU second, over all processes of a trainer, and the learning
curves: mean reward of a batch (the share of digits) by tokens trained before it.
"""

import tempfile
from collections import defaultdict
from pathlib import Path

import common
import numpy as np
from peers import Figures, Job, ratios_to_best, trl_python

LEARNING_RATE = 1e-4
NEW_TOKENS = 60
UPDATES = 2
MICRO_BATCHES = (32, 96)
"""Of the 96 responses of an update."""
BATCHES = 16
"""Of each learning curve; the smaller micro-batch of TRL, which is the slower, does but a few."""
FEW_BATCHES = 6
ROUNDS = 2
"""The trainers take turns, so that what disturbs the machine for minutes hits both."""


def reward_after(run: Figures, tokens: float) -> float:
    """Mean batch reward after a number of trained tokens, linearly interpolated between batches."""
    trained = np.cumsum([0.0, *run["curve_tokens"][:-1]])
    return float(np.interp(tokens, trained, run["curve_reward"]))


def main() -> None:
    python = trl_python()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        common.link_actor(folder)
        common.prepare_data(folder)
        job = Job(folder, common.PROMPTS, common.GROUP, NEW_TOKENS, LEARNING_RATE, UPDATES)
        runs: dict[str, list[Figures]] = defaultdict(list)
        for number in range(ROUNDS):
            runs["refblend"].append(job.ours(f"run_{number}", BATCHES))
            for size in MICRO_BATCHES:
                batches = BATCHES if size == max(MICRO_BATCHES) else FEW_BATCHES
                runs[f"TRL, micro-batch {size}"].append(job.trl(python, size, batches))
    best, ratios = ratios_to_best(runs)
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

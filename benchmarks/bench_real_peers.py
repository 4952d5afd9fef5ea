"""Our GRPO step at 135M parameters compared with TRL's GRPOTrainer, without a judge.

`TRL_ENV=.tools/trl python benchmarks/bench_real_peers.py` (after `make .tools/trl`) is
`bench_peers.py` at scale smollm: the same model, problems, rewards and lengths, one thread per
process, first with all products in float32, then in bfloat16 with float32 weights (TRL:
``bf16=True``); TRL with the better of two micro-batch sizes. A batch has 2 prompts × 8 responses of
at most 26 tokens, so that the benchmark ends within minutes, and one update. Ours runs before and
after TRL's. Batches are compared, of 16 responses each: TRL's responses get shorter than ours as
training goes on, which does not make its batches cheaper, so that tokens would flatter us.
"""

import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import common
import real_size
from peers import Figures, ratios_to_best, trl_python

GOAL = 3.0
MICRO_BATCHES = (8, 16)
"""Of the 16 responses of an update."""
OUR_BATCHES, TRL_BATCHES = 7, 6
"""The first three of both are not measured, nor our last, which validation follows."""


def main() -> None:
    python = trl_python()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = real_size.prepare_inputs(folder)
        for dtype in real_size.PRECISIONS:
            job = real_size.job(folder, dtype)
            runs: dict[str, list[Figures]] = defaultdict(list)
            runs["refblend"].append(job.ours(f"before_{dtype}", OUR_BATCHES))
            for size in MICRO_BATCHES:
                runs[f"TRL, micro-batch {size}"].append(job.trl(python, size, TRL_BATCHES))
            runs["refblend"].append(job.ours(f"after_{dtype}", OUR_BATCHES))
            best, ratios = ratios_to_best(runs, by_batch=True)
            found[dtype] = {"best": best, "ratios": ratios, "runs": runs}
    common.show(
        f"batches trained per second as a ratio to TRL's best, {real_size.described(path)}",
        ["precision", "trainer", "a CPU second", "a second of wall time"],
        [
            [dtype, way, ratio["cpu_seconds"], ratio["wall_seconds"]]
            for dtype, of in found.items()
            for way, ratio in of["ratios"].items()
        ],
    )
    common.record(
        "real_peers",
        "batches of 135M parameters trained per CPU second, as a ratio to TRL (the smaller one)",
        min(of["ratios"]["refblend"]["cpu_seconds"] for of in found.values()),
        GOAL,
        found | {"model": real_size.described(path)},
    )


if __name__ == "__main__":
    main()

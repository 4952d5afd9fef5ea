"""Peak memory of a run at 135M parameters with a judge, compared with TRL's without one.

`TRL_ENV=.tools/trl python benchmarks/bench_real_memory.py` (after `make .tools/trl`) trains the job
of `bench_real_peers.py` in bfloat16 with both trainers, ours with the judge of scale smollm, and
adds up the memory of all processes of each: the proportional set size, in which a page that several
processes share counts once. TRL computes all responses of the batch in one micro-batch, or half.
"""

import tempfile
from pathlib import Path

import common
import real_size
import runs
from peers import trl_python

GOAL = 1.0
BATCHES = 10
"""The memory of either grows with the first few: each has lengths of its own."""
MICRO_BATCHES = (8, 16)


def main() -> None:
    python = trl_python()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = real_size.prepare_inputs(folder)
        job = real_size.job(folder, "bfloat16")
        found: dict[str, float] = {}
        for way, judged in (("refblend with a judge", "true"), ("refblend without", "false")):
            enable = f"algorithm.ref_quality_score.enable={judged}"
            settings = [*job.our_settings(f"judged_{judged}", BATCHES), enable]
            found[way] = runs.peak_gib(runs.start_training(settings, job.configs))
        for size in MICRO_BATCHES:
            trl = job.start_trl(python, size, BATCHES)
            found[f"TRL without, micro-batch {size}"] = runs.peak_gib(trl)
    common.show(
        f"peak memory of all processes, {real_size.described(path)}",
        ["run", "GiB"],
        [[way, held] for way, held in found.items()],
    )
    least = min(held for way, held in found.items() if way.startswith("TRL"))
    common.record(
        "real_memory",
        "peak memory of all processes with a judge, as a ratio to TRL's least without one",
        found["refblend with a judge"] / least,
        GOAL,
        {"peak_gib": found, "model": real_size.described(path)},
    )


if __name__ == "__main__":
    main()

"""How much of the GEMM peak the update and the log-prob pass of 135M parameters reach.

`python benchmarks/bench_real_update.py` times both passes over a batch of scale smollm with the
workers' own code, in turn with products of the model's largest layer: a pass is counted as 2·N·T
and an update as 6·N·T operations, with N parameters and T distinct tokens (a prefix that responses
share counts once). Attention, softmax, optimiser and all memory traffic count as nothing.
"""

import statistics
import tempfile
from pathlib import Path
from typing import Any

import common
import real_size
from passes import passes_of

GOALS = {"float32": 0.75, "bfloat16": 0.55}
REPEATS = 2


def measure(folder: Path, path: Path, dtype: str) -> dict[str, Any]:
    """Share of the peak of each pass in one precision."""
    worker = real_size.load_actor(path, dtype)
    sequences = real_size.batch(folder, path)
    passes = passes_of(worker, sequences)
    product, operations = real_size.gemm(dtype)
    cases = {"gemm": product, "log_prob": passes.log_prob, "update": passes.update}
    times = common.alternate(cases, REPEATS, common.UPDATES_TO_WARM_UP)
    parameters = sum(p.numel() for p in worker.network.parameters())
    tokens = real_size.distinct_tokens(sequences, passes.plan)
    work = {"log_prob": 2.0 * parameters * tokens, "update": 6.0 * parameters * tokens}
    return {
        "parameters": parameters,
        "tokens": sum(sequences.lengths),
        "distinct_tokens": tokens,
        "micro_batches": len(passes.plan),
        "peak_gflops": operations / statistics.median(times["gemm"]) / 1e9,
        "share_of_peak": {
            # (operations per second of the pass) / (those of the product), round by round
            name: common.ratio(times["gemm"], times[name]) * work[name] / operations
            for name in work
        },
        "seconds": times,
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = real_size.prepare_inputs(folder)
        found = {dtype: measure(folder, path, dtype) for dtype in real_size.PRECISIONS}
    common.show(
        f"share of the GEMM peak, {real_size.described(path)}",
        ["precision", "peak (GFLOP/s)", "distinct tokens", "log-prob pass", "update", "goal"],
        [
            [
                dtype,
                of["peak_gflops"],
                of["distinct_tokens"],
                of["share_of_peak"]["log_prob"],
                of["share_of_peak"]["update"],
                GOALS[dtype],
            ]
            for dtype, of in found.items()
        ],
    )
    common.record(
        "real_update",
        "update of 135M parameters in float32, share of the GEMM peak",
        found["float32"]["share_of_peak"]["update"],
        GOALS["float32"],
        found | {"model": real_size.described(path), "goals": GOALS},
    )


if __name__ == "__main__":
    main()

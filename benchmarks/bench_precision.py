"""Training in bfloat16 and in float32: time, and how far the numbers differ.

`python benchmarks/bench_precision.py` times the log-prob pass and the update of a batch of scale
cpu with the workers' own code, both precisions in turn in one process, for the embedded shape and
for wider ones. Weights stay float32 in both; only the matrix products are computed in bfloat16
(``actor.fsdp_config.param_dtype``).
"""

import tempfile
from pathlib import Path
from typing import Any

import common
from passes import load_actor, passes_of

from refblend.workers.types import Sequences

SHAPES: dict[str, dict[str, int]] = {
    "embedded": {},
    "width 256": {"hidden_size": 256, "mlp_size": 768},
    "width 512": {"hidden_size": 512, "mlp_size": 1536},
}
"""By name what is changed in the embedded recipe."""
PRECISIONS = ("float32", "bfloat16")
REPEATS = 5


def compare(model: Path, sequences: Sequences) -> dict[str, Any]:
    """Times and numbers of a model in both precisions."""
    workers = {
        dtype: load_actor(model, f"actor.fsdp_config.param_dtype={dtype}") for dtype in PRECISIONS
    }
    passes = {dtype: passes_of(worker, sequences) for dtype, worker in workers.items()}
    norms = {dtype: of.update()["grad_norm"] for dtype, of in passes.items()}
    (_, exact), (_, rough) = (passes[dtype].log_prob() for dtype in PRECISIONS)
    times = {
        "forward": common.alternate({d: of.log_prob for d, of in passes.items()}, REPEATS),
        "update": common.alternate({d: of.update for d, of in passes.items()}, REPEATS),
    }
    return {
        "parameters": sum(p.numel() for p in workers["float32"].network.parameters()),
        "times_faster": {
            stage: common.ratio(of["float32"], of["bfloat16"]) for stage, of in times.items()
        },
        "largest_gap_of_a_log_prob": (exact[0] - rough[0]).abs().max().item(),
        "ratio_of_gradient_norms": norms["bfloat16"] / norms["float32"],
        "seconds": times,
    }


def main() -> None:
    tokenizer = common.embedded_tokenizer()
    sequences = common.make_sequences(len(tokenizer))
    found = {}
    for shape, change in SHAPES.items():
        with tempfile.TemporaryDirectory() as folder:
            model = common.make_model(Path(folder) / "model", tokenizer, **change)
            found[shape] = compare(model, sequences)
    common.show(
        "bfloat16, times faster than float32",
        ["model", "log-prob pass", "update", "largest gap of a log-prob", "gradient norms"],
        [
            [
                shape,
                of["times_faster"]["forward"],
                of["times_faster"]["update"],
                of["largest_gap_of_a_log_prob"],
                of["ratio_of_gradient_norms"],
            ]
            for shape, of in found.items()
        ],
    )
    common.record(
        "precision",
        "update in bfloat16, times faster than in float32 (embedded shape)",
        found["embedded"]["times_faster"]["update"],
        1.0,
        found,
    )


if __name__ == "__main__":
    main()

"""The weight push of 135M parameters, against one memcpy of the same bytes, and in its step.

`python benchmarks/bench_real_sync.py` pushes as a run does (packed by the actor into shared memory,
read by the vLLM engine there), in turn with a memcpy of as many bytes, in float32 and in bfloat16;
then the other parts of the step that scale smollm runs, without judge and without KL: generation,
log-probs, update of 8 × 8 responses. The share is that of this step, extrapolated to no other.
"""

import statistics
import tempfile
from pathlib import Path
from typing import Any

import common
import real_size
import torch
from passes import passes_of

from refblend.rollout.base import GenerationRequest
from refblend.workers.engine_workers import RolloutWorker
from refblend.workers.types import Sequences

NEW_TOKENS = 26
PUSHES = 6


def measure(path: Path, dtype: str) -> dict[str, Any]:
    """Times of the push and of the other parts in one precision."""
    worker = real_size.load_actor(path, dtype)
    engine = RolloutWorker(real_size.config_of(path, dtype))
    source = torch.cat(
        [t.flatten().to(getattr(torch, dtype)) for t in worker.full_weights().values()]
    )
    target = torch.empty_like(source)

    def push() -> None:
        packed = worker.pack_weights()
        assert packed is not None
        engine.load_weights(packed, 1)

    pushes = common.alternate({"push": push, "memcpy": lambda: target.copy_(source)}, PUSHES)
    drawn = real_size.batch(path)
    requests = [
        GenerationRequest(p, NEW_TOKENS, seed=i, ignore_eos=True)
        for i, p in enumerate(drawn.prompt_ids)
    ]
    answers = [g.token_ids for g in engine.generate(requests)]
    passes = passes_of(worker, Sequences(drawn.prompt_ids, answers))
    parts = common.alternate(
        {
            "generate": lambda: engine.generate(requests),
            "log_prob": passes.log_prob,
            "update": passes.update,
        },
        repeats=1,
    )
    engine.engine.shutdown()
    spent = statistics.median(pushes["push"])
    return {
        "mib": source.nbytes / 2**20,
        "responses": len(requests),
        "memcpys": common.ratio(pushes["push"], pushes["memcpy"]),
        "share_of_step": spent / (spent + sum(statistics.median(t) for t in parts.values())),
        "seconds": pushes | parts,
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = real_size.model(Path(folder))
        found = {dtype: measure(path, dtype) for dtype in real_size.PRECISIONS}
    keys = ("mib", "responses", "memcpys", "share_of_step")
    common.show(
        f"weight push, {real_size.described(path)}",
        ["precision", "MiB", "responses of the step", "× memcpy", "share of the step"],
        [[dtype, *(of[key] for key in keys)] for dtype, of in found.items()],
    )
    common.record(
        "real_sync",
        "weight push of 135M parameters, as a ratio to one memcpy of its bytes (the larger one)",
        max(of["memcpys"] for of in found.values()),
        3.0,
        found | {"model": real_size.described(path), "goal_share_of_step": 0.02},
    )


if __name__ == "__main__":
    main()

"""The weight push of 135M parameters, against one memcpy of the same bytes, and in its step.

`python benchmarks/bench_real_sync.py` pushes as a run does (packed by the actor into shared memory,
read by the vLLM engine there), in turn with a memcpy of as many bytes, in float32 and in bfloat16;
then, in bfloat16, the other parts of the step that scale smollm runs, without judge and without KL:
generation, log-probs, update of 8 × 8 responses. The share is that of this step, extrapolated to no
other.
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
from refblend.workers.fsdp_workers import ActorWorker
from refblend.workers.types import Sequences

PUSHES = 4


def measure(folder: Path, path: Path, dtype: str) -> dict[str, Any]:
    """Times of the push in one precision; in the scale's, of the step's other parts, too."""
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

    times = common.alternate({"push": push, "memcpy": lambda: target.copy_(source)}, PUSHES)
    found = {
        "mib": source.nbytes / 2**20,
        "memcpys": common.ratio(times["push"], times["memcpy"]),
        "seconds": times,
    }
    stepped = dtype == real_size.PRECISION
    if stepped:
        drawn = real_size.batch(folder, path)
        answers, times["generate"] = time_generation(engine, drawn.prompt_ids)
    engine.engine.shutdown()  # or the passes would be slower than in the actor's process
    if stepped:
        times |= time_passes(worker, Sequences(drawn.prompt_ids, answers))
        spent = statistics.median(times["push"])
        rest = sum(sum(times[part]) for part in ("generate", "log_prob", "update"))
        found["share_of_step"] = spent / (spent + rest)
    return found


def time_generation(
    engine: RolloutWorker, prompts: list[list[int]]
) -> tuple[list[list[int]], list[float]]:
    """The step's responses, and the seconds that they took."""
    requests = [
        GenerationRequest(p, real_size.NEW_TOKENS, seed=i, ignore_eos=True)
        for i, p in enumerate(prompts)
    ]
    answers: list[list[int]] = []

    def generate() -> None:
        answers.extend(g.token_ids for g in engine.generate(requests))

    times = common.alternate({"generate": generate}, repeats=1, warm_ups=0)
    return answers, times["generate"]


def time_passes(worker: ActorWorker, batch: Sequences) -> dict[str, list[float]]:
    """Seconds of the log-prob pass and of the update, once each."""
    passes = passes_of(worker, batch)
    rest = {"log_prob": passes.log_prob, "update": passes.update}
    return common.alternate(rest, 1, common.UPDATES_TO_WARM_UP)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = real_size.prepare_inputs(folder)
        found = {dtype: measure(folder, path, dtype) for dtype in real_size.PRECISIONS}
    common.show(
        f"weight push, {real_size.described(path)}",
        ["precision", "MiB", "× memcpy", "share of the step"],
        [
            [dtype, of["mib"], of["memcpys"], of.get("share_of_step", "")]
            for dtype, of in found.items()
        ],
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

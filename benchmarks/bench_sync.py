"""The weight push as a share of a step and relative to memcpy, at 3M and 100M parameters.

`python benchmarks/bench_sync.py` pushes as a run does (gathered from the actor, through Ray's
object store, into the vLLM engine) and times, in the same process, the other parts of a step on a
batch of scale cpu at 3M and of 16 responses at 100M parameters. The share is that of the step that
was run, scaled to no other.
"""

import tempfile
from pathlib import Path
from typing import Any

import common
import ray
import torch
from passes import load_actor, passes_of

from refblend.rollout.base import EngineOptions, GenerationRequest
from refblend.rollout.factory import start_engine
from refblend.workers.types import Sequences

SHAPES: dict[str, dict[str, Any]] = {
    "3M": {"hidden_size": 256, "num_layers": 4, "num_heads": 8, "num_kv_heads": 4, "mlp_size": 768},
    "100M": {
        "hidden_size": 768,
        "num_layers": 14,
        "num_heads": 12,
        "num_kv_heads": 4,
        "mlp_size": 2304,
    },
}
PROMPTS = {"3M": common.PROMPTS, "100M": 2}
NEW_TOKENS = 27
REPEATS = {"3M": 4, "100M": 2}


def measure(name: str, folder: Path, tokenizer: Any) -> dict[str, Any]:
    """Times of every part for one size, and the bytes moved."""
    path = common.make_model(folder / name, tokenizer, **SHAPES[name])
    worker = load_actor(path)
    engine = start_engine("vllm", EngineOptions(str(path), 256, kv_cache_memory_mb=256))
    drawn = common.make_sequences(len(tokenizer), PROMPTS[name])
    requests = [GenerationRequest(p, NEW_TOKENS, seed=i) for i, p in enumerate(drawn.prompt_ids)]
    answers = [g.token_ids for g in engine.generate(requests)]
    sequences = Sequences(drawn.prompt_ids, answers)
    passes = passes_of(worker, sequences)
    weights = worker.full_weights()
    copies = {k: torch.empty_like(v) for k, v in weights.items()}

    def push() -> None:
        engine.load_weights(ray.get(ray.put(worker.full_weights())), 1)

    def memcpy() -> None:
        for key, tensor in weights.items():
            copies[key].copy_(tensor)

    times = common.alternate(
        {
            "push": push,
            "memcpy": memcpy,
            "generate": lambda: engine.generate(requests),
            "log_prob": passes.log_prob,
            "update": passes.update,
        },
        REPEATS[name],
    )
    engine.shutdown()
    moved = sum(t.numel() * t.element_size() for t in weights.values())
    return {
        "parameters": sum(t.numel() for t in weights.values()),
        "mib": moved / 2**20,
        "responses": len(sequences),
        "tokens": sum(sequences.lengths),
        "seconds": times,
    }


def main() -> None:
    ray.init(num_cpus=1, object_store_memory=2**30, include_dashboard=False, log_to_driver=False)
    tokenizer = common.embedded_tokenizer()
    with tempfile.TemporaryDirectory() as folder:
        found = {name: measure(name, Path(folder), tokenizer) for name in SHAPES}
    ray.shutdown()
    rows = []
    for name, figures in found.items():
        times = figures["seconds"]
        steps = [sum(t) for t in zip(*(v for k, v in times.items() if k != "memcpy"), strict=True)]
        figures["share_of_step"] = common.ratio(times["push"], steps)
        figures["memcpys"] = common.ratio(times["push"], times["memcpy"])
        keys = ("responses", "share_of_step", "memcpys")
        rows.append([name, *(figures[key] for key in keys)])
    columns = ["parameters", "responses per step", "share of the step", "× memcpy"]
    common.show("weight push", columns, rows)
    common.record(
        "sync",
        "largest share of the step that was run taken by the weight push",
        max(figures["share_of_step"] for figures in found.values()),
        0.02,
        found,
    )


if __name__ == "__main__":
    main()

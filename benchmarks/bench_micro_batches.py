"""Time of the log-prob pass and of the update against the token budget of a micro-batch.

`python benchmarks/bench_micro_batches.py` prints ratios to the largest budget, measured in turn in
one process, and writes benchmarks/results/micro_batches.json. The model has the shape of the
embedded actor with random weights; lengths are drawn like those of scale cpu.
"""

import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

from refblend import runtime

runtime.configure_process(1)

import torch
from rich.console import Console
from rich.table import Table
from transformers import Qwen2Config, Qwen2ForCausalLM

from refblend.config import load_config
from refblend.files import write_json
from refblend.provenance import git_state, hardware
from refblend.seeding import derive_generator
from refblend.workers import batching
from refblend.workers.fsdp_workers import ActorWorker
from refblend.workers.types import MiniBatch, PolicyTargets, Sequences, response_mask

BUDGETS = (512, 1024, 2048, 4096, 8192, 16384)
REPEATS = 5
PROMPTS, GROUP = 32, 8


def make_model(directory: Path) -> None:
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=581,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
    )
    Qwen2ForCausalLM(config).save_pretrained(directory)


def make_sequences() -> Sequences:
    rng = derive_generator(0, "bench")
    prompts = [
        rng.integers(5, 580, rng.integers(30, 60)).tolist()
        for _ in range(PROMPTS)
        for _ in range(GROUP)
    ]
    responses = [rng.integers(5, 580, rng.integers(5, 60)).tolist() for _ in prompts]
    return Sequences(prompts, responses)


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    sequences = make_sequences()
    rows = range(len(sequences))
    mask = response_mask(sequences.response_lengths)
    targets = PolicyTargets(mask, torch.zeros_like(mask), torch.randn_like(mask))
    tokens, count = float(mask.sum()), len(sequences)
    times: dict[int, dict[str, list[float]]] = {b: {"forward": [], "update": []} for b in BUDGETS}
    with tempfile.TemporaryDirectory() as folder:
        make_model(Path(folder))
        config = load_config(
            ["params/ppo.yaml", "params/scale/cpu.yaml"],
            [f"actor_rollout_ref.model.path={folder}", "algorithm.ref_quality_score.enable=false"],
        )
        worker = ActorWorker(config, total_steps=1)
        for repeat in range(REPEATS + 1):  # the first one warms up
            for budget in BUDGETS:
                plan = batching.plan_micro_batches(sequences.lengths, rows, 1, budget)[0]
                mini = [MiniBatch(plan, tokens, count)]
                forward = seconds(lambda p=plan: worker.compute_log_prob(sequences, p))
                update = seconds(lambda m=mini: worker.update(sequences, targets, m, 1))
                if repeat:
                    times[budget]["forward"].append(forward)
                    times[budget]["update"].append(update)
    medians = {b: {k: statistics.median(v) for k, v in t.items()} for b, t in times.items()}
    worst = medians[BUDGETS[-1]]
    table = Table("tokens a micro-batch", "forward", "update", title="time, as a ratio to the last")
    for budget, value in medians.items():
        ratios = [f"{value[k] / worst[k]:.2f}" for k in ("forward", "update")]
        table.add_row(str(budget), *ratios)
    Console().print(table)
    best = min(medians.values(), key=lambda v: v["update"])
    result = {
        "headline": {"value": round(best["update"] / worst["update"], 3), "goal": 1.0},
        "what": "update time at the best token budget as a ratio to the largest one",
        "seconds": medians,
        "tokens": sum(sequences.lengths),
        "repeats": REPEATS,
        "threads": 1,
        "git": git_state(Path.cwd()),
        "hardware": hardware(),
    }
    write_json("benchmarks/results/micro_batches.json", json.loads(json.dumps(result)))


if __name__ == "__main__":
    main()

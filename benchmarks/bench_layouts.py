"""Plain and shared layout of micro-batches, by token budget and by similarity of the responses.

`python benchmarks/bench_layouts.py` times the log-prob pass and the update of a batch of scale cpu
(24 prompts × 8 responses) with the workers' own code, the variants in turn in one process: on
random responses, which share nothing but their prompt, for several budgets, and on the responses
of the study's actor at several temperatures, down to those at which it repeats itself.
"""

import tempfile
from pathlib import Path
from typing import Any

import common
import torch
from passes import load_actor, passes_of

from refblend.config import load_config
from refblend.rollout.base import EngineOptions, GenerationRequest
from refblend.rollout.hf_engine import HfEngine
from refblend.seeding import derive_seed
from refblend.trainer.datasets import load_run_data
from refblend.workers.fsdp_workers import ActorWorker
from refblend.workers.layout import PrefixTree, pad_batch
from refblend.workers.types import Sequences

BUDGETS = {False: (1024, 2048, 8192), True: (1024, 2048, 4096, 8192)}
NAMES = {False: "plain", True: "shared"}
BASE = "plain 2048"
"""The best plain setting, which scale cpu had before."""
BUDGET = 2048
"""That of scale cpu."""
TEMPERATURES = (1.0, 0.6, 0.3)
REPEATS = 5


def sample(folder: Path, temperature: float) -> Sequences:
    """The actor's responses to the first prompts of the training data."""
    config = load_config(common.CONFIGS, common.run_overrides(folder, folder / "run", 1))
    prompts = [
        list(ids)
        for ids in load_run_data(config).train.prompt_ids[: common.PROMPTS]
        for _ in range(common.GROUP)
    ]
    longest = config.data.max_response_length
    engine = HfEngine(EngineOptions(f"{folder}/actor", config.data.max_prompt_length + longest))
    answers = engine.generate(
        [
            GenerationRequest(ids, longest, temperature, derive_seed(0, "bench", i))
            for i, ids in enumerate(prompts)
        ]
    )
    return Sequences(prompts, [list(answer.token_ids) for answer in answers])


def counted(sequences: Sequences) -> dict[str, int]:
    """Tokens of a batch: of all rows, with each prompt once, and with each prefix once."""
    prompts = {tuple(p) for p in sequences.prompt_ids}
    tree = PrefixTree(pad_batch(sequences, range(len(sequences)), torch.device("cpu")))
    return {
        "plain": sum(sequences.lengths),
        "prompts_once": sum(map(len, prompts)) + sum(sequences.response_lengths),
        "beginnings_once": len(tree.keep),
    }


def time_passes(
    workers: dict[bool, ActorWorker], sequences: Sequences, budgets: dict[bool, tuple[int, ...]]
) -> dict[str, Any]:
    """Seconds of both passes by layout and budget, and how many times faster than ``BASE``."""
    passes = {
        f"{NAMES[shared]} {budget}": passes_of(workers[shared], sequences, budget)
        for shared, of in budgets.items()
        for budget in of
    }
    times = {
        "log_prob": common.alternate({n: p.log_prob for n, p in passes.items()}, REPEATS),
        "update": common.alternate({n: p.update for n, p in passes.items()}, REPEATS),
    }
    return {
        "tokens": counted(sequences),
        "seconds": times,
        "speedup": {
            stage: {name: common.ratio(of[BASE], spent) for name, spent in of.items()}
            for stage, of in times.items()
        },
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tokenizer = common.embedded_tokenizer()
        common.prepare_inputs(folder)
        workers = {
            shared: load_actor(folder / "actor", f"model.use_shared_prefix={str(shared).lower()}")
            for shared in (False, True)
        }
        random = time_passes(workers, common.make_sequences(len(tokenizer)), BUDGETS)
        sampled = {
            temperature: time_passes(
                workers, sample(folder, temperature), {False: (BUDGET,), True: (BUDGET,)}
            )
            for temperature in TEMPERATURES
        }
    ours = f"{NAMES[True]} {BUDGET}"
    common.show(
        f"random responses: times faster than {BASE}",
        ["layout, budget", "log-prob pass", "update"],
        [
            [layout, random["speedup"]["log_prob"][layout], faster]
            for layout, faster in random["speedup"]["update"].items()
        ],
    )
    common.show(
        f"an actor's responses: {ours}, times faster than {BASE}",
        ["temperature", "tokens", "prompts once", "beginnings once", "log-prob pass", "update"],
        [
            [
                t,
                *of["tokens"].values(),
                of["speedup"]["log_prob"][ours],
                of["speedup"]["update"][ours],
            ]
            for t, of in sampled.items()
        ],
    )
    common.record(
        "layouts",
        f"update of an actor's responses in the shared layout, times faster than {BASE}",
        sampled[TEMPERATURES[0]]["speedup"]["update"][ours],
        1.7,
        {"random": random, "sampled": {str(t): of for t, of in sampled.items()}},
    )


if __name__ == "__main__":
    main()

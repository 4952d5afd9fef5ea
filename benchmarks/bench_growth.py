"""How the stages of a step grow with tokens, n and model size, as fitted exponents.

`python benchmarks/bench_growth.py` varies one axis at a time (prompts, response length, responses
per prompt (n), model width) and times the networks' passes of a step of scale cpu (log-probs with
entropy, then forward, backward and AdamW, as in `bench_step.py`), vLLM's generation of responses of
exactly that length, and the judge: prompts with a common prefix, response and question, with as
many new tokens as a trained judge writes. The exponent is the slope of log time over log size:
parameters for the width; otherwise distinct tokens of the batch for the networks and the axis
itself for the engines. 1 is linear.
"""

import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import common
import numpy as np
from bench_step import adamw, log_probs, optimise

from refblend.config import RefblendConfig, load_config
from refblend.rollout.base import EngineOptions
from refblend.rollout.vllm_engine import VllmEngine
from refblend.workers.networks import PolicyNetwork, load_policy
from refblend.workers.types import Sequences

START = {"prompts": 8, "response length": 32, "n": 8, "width": 128}
AXES = {
    "prompts": (4, 8, 16, 32),
    "response length": (16, 32, 64, 128),
    "n": (2, 4, 8, 16),
    "width": (64, 128, 256, 512),
}
STAGES = ("networks", "generation", "judge")
JUDGE_PREFIX = 150
"""Tokens that all prompts of the judge share."""
REPEATS = 4


@dataclass(frozen=True)
class Model:
    """A random model of a given width, for training and generation."""

    policy: PolicyNetwork
    engine: VllmEngine

    @classmethod
    def make(cls, folder: Path, tokenizer: Any, width: int) -> "Model":
        """Heads of 32 in every width."""
        shape = {"hidden_size": width, "mlp_size": 3 * width, "num_heads": width // 32}
        common.make_model(folder, tokenizer, **shape, num_kv_heads=width // 64)
        engine = VllmEngine(EngineOptions(str(folder), 512, kv_cache_memory_mb=512))
        return cls(load_policy(str(folder), 1.0), engine)

    @property
    def parameters(self) -> int:
        """Their number."""
        return sum(p.numel() for p in self.policy.parameters())


def config_of(group: int) -> RefblendConfig:
    """Scale cpu with another n."""
    needed = [
        "data.train_files=[a]",
        "data.val_files=[a]",
        "actor_rollout_ref.model.path=a",
        "algorithm.ref_quality_score.scoring.model_path=a",
        f"actor_rollout_ref.rollout.n={group}",
    ]
    return load_config(common.CONFIGS, needed)


def tokens_of(sequences: Sequences) -> int:
    """Distinct tokens: a prompt counts once for its responses."""
    prompts = {id(ids): len(ids) for ids in sequences.prompt_ids}
    return sum(prompts.values()) + sum(sequences.response_lengths)


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """Slope of log time over log size."""
    logs = [math.log(s) for s in seconds]
    return float(np.polyfit([math.log(s) for s in sizes], logs, 1)[0])


def generate(engine: VllmEngine, prompts: Sequence[Sequence[int]], new_tokens: int) -> None:
    """Generate a fixed number of tokens for each prompt, starting with an empty prefix cache."""
    from vllm import SamplingParams
    from vllm.inputs import TokensPrompt

    engine.reset_prefix_cache()
    sampling = [
        SamplingParams(max_tokens=new_tokens, seed=seed, ignore_eos=True, detokenize=False)
        for seed in range(len(prompts))
    ]
    inputs = [TokensPrompt(prompt_token_ids=list(ids)) for ids in prompts]
    engine._llm.generate(inputs, sampling, use_tqdm=False)


def stages_of(
    model: Model, sequences: Sequences, config: RefblendConfig
) -> dict[str, Callable[[], None]]:
    """The work of each stage on these responses."""
    prefix = sequences.prompt_ids[0] * (1 + JUDGE_PREFIX // len(sequences.prompt_ids[0]))
    judged = [
        [*prefix[:JUDGE_PREFIX], *response, *prompt]
        for prompt, response in zip(sequences.prompt_ids, sequences.response_ids, strict=True)
    ]

    optimiser = adamw(model.policy)

    def networks() -> None:
        log_probs(model.policy, sequences, config)
        optimise(model.policy, optimiser, sequences, config)

    return {
        "networks": networks,
        "generation": lambda: generate(
            model.engine, sequences.prompt_ids, sequences.response_width
        ),
        "judge": lambda: generate(model.engine, judged, common.JUDGE_TOKENS),
    }


def measure(models: dict[int, Model], vocab: int, axis: str) -> dict[str, Any]:
    """CPU seconds of every stage along the axis, and the sizes to compare them with."""
    cases: dict[str, Callable[[], None]] = {}
    tokens, parameters = [], []
    for value in AXES[axis]:
        at = START | {axis: value}
        length = at["response length"]
        sequences = common.make_sequences(
            vocab, at["prompts"], at["n"], response_tokens=(length, length + 1)
        )
        model = models[at["width"]]
        for stage, work in stages_of(model, sequences, config_of(at["n"])).items():
            cases[f"{stage} {value}"] = work
        tokens.append(tokens_of(sequences))
        parameters.append(model.parameters)
    spent = {case: min(times) for case, times in common.alternate(cases, REPEATS).items()}
    times = {stage: [spent[f"{stage} {value}"] for value in AXES[axis]] for stage in STAGES}
    sizes: dict[str, Sequence[float]] = {
        "axis": AXES[axis],
        "tokens": tokens,
        "parameters": parameters,
    }
    exponents = {stage: exponent(sizes[unit(axis, stage)], of) for stage, of in times.items()}
    return {"sizes": sizes, "cpu_seconds": times, "exponents": exponents}


def unit(axis: str, stage: str) -> str:
    """The unit that a stage's time is compared with."""
    if axis == "width":
        return "parameters"
    return "tokens" if stage == "networks" else "axis"


def main() -> None:
    tokenizer = common.embedded_tokenizer()
    with tempfile.TemporaryDirectory() as name:
        models = {w: Model.make(Path(name) / str(w), tokenizer, w) for w in AXES["width"]}
        found = {axis: measure(models, len(tokenizer), axis) for axis in AXES}
    rows = []
    for axis, figures in found.items():
        for stage, times in figures["cpu_seconds"].items():
            ratios = [f"{v}: {t / times[0]:.2f}" for v, t in zip(AXES[axis], times, strict=True)]
            rows.append(
                [axis, stage, *ratios, f"{figures['exponents'][stage]:.2f} in {unit(axis, stage)}"]
            )
    common.show(
        "time as a ratio to the smallest", ["axis", "stage", "1", "2", "3", "4", "exponent"], rows
    )
    common.record(
        "growth",
        "largest exponent of the networks' passes in distinct tokens",
        max(of["exponents"]["networks"] for axis, of in found.items() if axis != "width"),
        1.1,
        found,
    )


if __name__ == "__main__":
    main()

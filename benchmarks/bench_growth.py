"""Growth of a step's network passes with tokens, n and model size, as fitted exponents.

`python benchmarks/bench_growth.py` times log-probs with entropy, then forward, backward and AdamW,
as in a step of scale cpu (`bench_step.py`), over one axis at a time: prompts, response length,
responses a prompt (n), and width of the model. The exponent is the slope of log time over log
size: 1 is linear. Generation is not in it.
"""

import math
import tempfile
from pathlib import Path
from typing import Any

import common
import numpy as np
from bench_step import log_probs, optimise

from refblend.config import RefblendConfig, load_config
from refblend.workers.networks import PolicyNetwork, load_policy
from refblend.workers.types import Sequences

PROMPTS, GROUP, LENGTH, WIDTH = 8, 8, 32, 128
AXES = {
    "prompts": (4, 8, 16, 32),
    "response length": (16, 32, 64, 128),
    "n": (2, 4, 8, 16),
    "width": (64, 128, 256, 512),
}
REPEATS = 2


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


def exponent(sizes: list[float], seconds: list[float]) -> float:
    """Slope of log time over log size."""
    logs = [math.log(s) for s in seconds]
    return float(np.polyfit([math.log(s) for s in sizes], logs, 1)[0])


def main() -> None:
    tokenizer = common.embedded_tokenizer()
    rows, figures, fitted = [], {}, {}
    with tempfile.TemporaryDirectory() as name:
        policies: dict[int, PolicyNetwork] = {}
        for width in AXES["width"]:
            shape = {"hidden_size": width, "mlp_size": 3 * width, "num_heads": width // 32}
            shape |= {"num_kv_heads": width // 64}
            folder = common.make_model(Path(name) / str(width), tokenizer, **shape)
            policies[width] = load_policy(str(folder), 1.0)
        for axis, values in AXES.items():
            cases: dict[str, Any] = {}
            sizes: dict[str, float] = {}
            tokens: dict[str, int] = {}
            for value in values:
                at = {"prompts": PROMPTS, "response length": LENGTH, "n": GROUP, "width": WIDTH}
                at[axis] = value
                length = at["response length"]
                sequences = common.make_sequences(
                    len(tokenizer), at["prompts"], at["n"], response_tokens=(length, length + 1)
                )
                policy, config = policies[at["width"]], config_of(at["n"])

                def work(
                    policy: PolicyNetwork = policy,
                    sequences: Sequences = sequences,
                    config: RefblendConfig = config,
                ) -> None:
                    log_probs(policy, sequences, config)
                    optimise(policy, sequences, config)

                cases[str(value)] = work
                tokens[str(value)] = tokens_of(sequences)
                sizes[str(value)] = float(sum(p.numel() for p in policy.parameters()))
            times = {k: min(v) for k, v in common.alternate(cases, REPEATS).items()}
            # Tokens for what changes them, parameters for the model.
            scale = list(sizes.values()) if axis == "width" else [float(t) for t in tokens.values()]
            fitted[axis] = exponent(scale, list(times.values()))
            figures[axis] = {"cpu_seconds": times, "tokens": tokens, "parameters": sizes}
            shown = [f"{k}: {s / next(iter(times.values())):.2f}" for k, s in times.items()]
            unit = "parameters" if axis == "width" else "tokens"
            rows.append([axis, *shown, f"{fitted[axis]:.2f} in {unit}"])
    common.show("time as a ratio to the smallest", ["axis", "1", "2", "3", "4", "exponent"], rows)
    token_axes = ("prompts", "response length", "n")
    common.record(
        "growth",
        "largest exponent of the network passes' time in distinct tokens",
        max(fitted[axis] for axis in token_axes),
        1.1,
        {"exponents": fitted, "axes": figures},
    )


if __name__ == "__main__":
    main()

"""A training step of 135M parameters with a judge, compared with the sum of its bare parts.

`python benchmarks/bench_real_step.py` is `bench_step.py` at scale smollm: bfloat16, guided judge,
one thread per process. Actor and judge are the same untrained model, and a step has 2 prompts × 8
responses, so that the benchmark ends within minutes; what costs the same per step whatever the
batch (AdamW, weight push) weighs more than in the 8 prompts of the scale. Every response is as long
as the limit, so that the steps cost the same whatever was sampled.
"""

import tempfile
from pathlib import Path

import real_size
import runs
from bench_step import compare, measure_parts

from refblend.config import load_config

STEPS = 7
SETTINGS = [*real_size.SMALL_RUN, "actor_rollout_ref.rollout.ignore_eos=true"]


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = real_size.prepare_inputs(folder)
        settings = [*runs.overrides(folder, STEPS), *SETTINGS]
        steps, lines = runs.run_training(folder / "run", settings, STEPS, real_size.CONFIGS)
        config = load_config(real_size.CONFIGS, settings)
        parts = measure_parts(config, STEPS, other_ways=False)
    described = {"model": real_size.described(path), "settings": SETTINGS}
    compare("real_step", 1.05, steps, lines, parts, **described)


if __name__ == "__main__":
    main()

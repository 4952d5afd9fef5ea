"""Peak memory of a LoRA run whose judge is the base: one vLLM engine for both, against two.

`python benchmarks/bench_shared_engine.py` trains 135M parameters in bfloat16 with an adapter. With
`rollout.lora: adapter` the rollout engine also answers the judge, without the adapter; with
`merged` the judge is an engine of its own. Memory is that of all processes, as a proportional set.
"""

import tempfile
from pathlib import Path

import common
import real_size
import runs

from refblend.config.scoring import SCORING_KEY

GOAL = 1.0
STEPS = 3


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = real_size.prepare_inputs(folder)
        job = real_size.job(folder, "bfloat16")
        found: dict[str, float] = {}
        for engines, lora in (("one engine", "adapter"), ("two engines", "merged")):
            settings = [
                *job.our_settings(lora, STEPS),
                "actor_rollout_ref.model.lora_rank=16",
                f"actor_rollout_ref.rollout.lora={lora}",
                "algorithm.ref_quality_score.enable=true",
                *(f"{SCORING_KEY}.kind=reference", f"{SCORING_KEY}.model_path=null"),
            ]
            found[engines] = runs.peak_gib(runs.start_training(settings, job.configs))
    rows = [[engines, held] for engines, held in found.items()]
    described = real_size.described(path)
    common.show(f"peak memory of all processes, {described}", ["run", "GiB"], rows)
    common.record(
        "shared_engine",
        "peak memory with one engine for actor and judge, as a ratio to that with two",
        found["one engine"] / found["two engines"],
        GOAL,
        {"peak_gib": found, "model": described},
    )


if __name__ == "__main__":
    main()

"""Plain against shared layout of micro-batches, by token budget.

`python benchmarks/bench_layouts.py` times the log-prob pass and the update of a batch of scale cpu
(24 prompts × 8 responses) with the workers' own code, the variants in turn in one process.
"""

import tempfile
from pathlib import Path

import common
from passes import passes_of

from refblend.config import load_config
from refblend.workers.fsdp_workers import ActorWorker

BUDGETS = {False: (1024, 2048, 8192), True: (1024, 2048, 4096, 8192)}
NAMES = {False: "plain", True: "shared"}
BASE = "plain 2048"
"""The best plain setting, which scale cpu had before."""
REPEATS = 5


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = common.embedded_tokenizer()
        common.make_model(Path(folder) / "model", tokenizer)
        sequences = common.make_sequences(len(tokenizer))
        forward, update, computed = {}, {}, {}
        for shared, budgets in BUDGETS.items():
            config = load_config(
                common.CONFIGS,
                [
                    f"actor_rollout_ref.model.path={folder}/model",
                    f"actor_rollout_ref.model.use_shared_prefix={str(shared).lower()}",
                    "algorithm.ref_quality_score.enable=false",
                ],
            )
            worker = ActorWorker(config, total_steps=1)
            for budget in budgets:
                passes = passes_of(worker, sequences, budget)
                name = f"{NAMES[shared]} {budget}"
                forward[name], update[name] = passes.log_prob, passes.update
                computed[name] = (
                    len(sequences)
                    if not shared
                    else sum(
                        len({tuple(sequences.prompt_ids[r]) for r in rows}) for rows in passes.plan
                    )
                )
        times = {
            "forward": common.alternate(forward, REPEATS),
            "update": common.alternate(update, REPEATS),
        }
    speedups = {
        stage: {name: common.ratio(of[BASE], spent) for name, spent in of.items()}
        for stage, of in times.items()
    }
    common.show(
        f"times faster than {BASE}",
        ["layout, budget", "prompts computed", "log-prob pass", "update"],
        [
            [name, computed[name], speedups["forward"][name], speedups["update"][name]]
            for name in forward
        ],
    )
    default = f"{NAMES[True]} {config.actor_rollout_ref.actor.ppo_max_token_len_per_gpu}"
    common.record(
        "layouts",
        f"update in the shared layout, times faster than {BASE}",
        speedups["update"][default],
        1.7,
        {
            "speedup": speedups,
            "seconds": times,
            "prompts_computed": computed,
            "tokens": {
                "plain": sum(sequences.lengths),
                "shared": sum(sequences.response_lengths)
                + sum(map(len, sequences.prompt_ids[:: common.GROUP])),
            },
        },
    )


if __name__ == "__main__":
    main()

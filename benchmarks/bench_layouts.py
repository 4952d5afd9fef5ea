"""Plain against shared layout of micro-batches, by token budget.

`python benchmarks/bench_layouts.py` times the log-prob pass and the update of a batch of scale cpu
(32 prompts × 8 responses) with the workers' own code, the variants in turn in one process.
"""

import tempfile
from pathlib import Path

import common
import torch

from refblend.config import load_config
from refblend.workers import batching
from refblend.workers.fsdp_workers import ActorWorker
from refblend.workers.types import MiniBatch, PolicyTargets, response_mask

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
        mask = response_mask(sequences.response_lengths)
        targets = PolicyTargets(mask, torch.zeros_like(mask), torch.randn_like(mask))
        tokens, count = float(mask.sum()), len(sequences)
        forward, update, computed = {}, {}, {}
        for shared, budgets in BUDGETS.items():
            config = load_config(
                [common.ROOT / "params/ppo.yaml", common.ROOT / "params/scale/cpu.yaml"],
                [
                    f"actor_rollout_ref.model.path={folder}/model",
                    f"actor_rollout_ref.model.use_shared_prefix={str(shared).lower()}",
                    "algorithm.ref_quality_score.enable=false",
                ],
            )
            worker = ActorWorker(config, total_steps=1)
            for budget in budgets:
                plan = batching.plan_micro_batches(
                    sequences.lengths,
                    range(count),
                    1,
                    budget,
                    prompts=sequences.prompt_ids if shared else None,
                )[0]
                name = f"{NAMES[shared]} {budget}"
                mini = [MiniBatch(plan, tokens, count)]
                forward[name] = lambda w=worker, p=plan: w.compute_log_prob(sequences, p)
                update[name] = lambda w=worker, m=mini: w.update(sequences, targets, m, 1)
                computed[name] = (
                    count
                    if not shared
                    else sum(len({tuple(sequences.prompt_ids[r]) for r in rows}) for rows in plan)
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

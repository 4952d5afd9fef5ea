"""Runs the advantage stage of verl and of our trainer on random batches, through verl's real
transfer queue, and prints one JSON line.

Arguments: the folder of the configuration, a scratch folder, and the cases as JSON, each with
``seed``, ``overrides`` of the configuration and ``trainer`` (``refblend`` or ``sync``).
"""

import json
import sys
from typing import Any

import ray
import torch
import transfer_queue as tq
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1 import get_trainer_cls
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from refblend.errors import ConfigError

examples, scratch, cases = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
PROMPTS, GROUP, LONGEST, PADDING = 3, 4, 7, 2
TENSORS = ("rm_scores", "entropy", "old_log_probs", "ref_log_prob", "values")


def make_rows(seed: int) -> list[dict[str, Any]]:
    """One row per response, and rows as verl adds them to fill a batch (no token counts)."""
    random = torch.Generator().manual_seed(seed)
    rows = []
    for number in range(PROMPTS * GROUP + PADDING):
        padding = number >= PROMPTS * GROUP
        length = 1 if padding else int(torch.randint(1, LONGEST + 1, (1,), generator=random))
        row: dict[str, Any] = {
            name: torch.randn(length, generator=random) for name in TENSORS if name != "rm_scores"
        }
        row["entropy"] = row["entropy"].abs() / 2
        row["rm_scores"] = torch.zeros(length)
        row["rm_scores"][-1] = float(torch.randint(0, 2, (1,), generator=random))
        row["response_mask"] = torch.full((length,), 0 if padding else 1)
        row["uid"] = "pad" if padding else f"prompt{number // GROUP}"
        score = float(torch.rand(1, generator=random))
        valid = number % 5 != 0
        row["extra_fields"] = {
            "reward_extra_info": {
                "score": float(row["rm_scores"][-1]),
                "acc": float(row["rm_scores"][-1]),
                "judge_score": score if valid else 0.5,
                "judge_valid": float(valid),
                "judge_path": "text" if valid else "default",
            }
        }
        if padding:
            row["rm_scores"].zero_()
        rows.append(row)
    return rows


def run(number: int, case: dict[str, Any]) -> dict[str, Any]:
    with initialize_config_dir(examples, version_base=None):
        config = compose("refblend", overrides=case["overrides"])
    OmegaConf.resolve(config)
    try:
        trainer = get_trainer_cls(case["trainer"])(config)
    except ConfigError as error:
        return {"refused": str(error)}
    trainer.global_steps, trainer.total_training_steps = 3, 10
    rows, partition = make_rows(case["seed"]), f"train{number}"
    keys = [f"{row['uid']}_{i}_0" for i, row in enumerate(rows)]
    tags = [{"is_padding": row["uid"] == "pad"} for row in rows]
    fields = list_of_dict_to_tensordict(rows)
    tq.kv_batch_put(keys=keys, partition_id=partition, fields=fields, tags=tags)
    batch = KVBatchMeta(partition_id=partition, keys=keys, tags=tags)
    metrics: dict[str, Any] = {}
    trainer._compute_advantage(batch, metrics)
    wanted = ["advantages", "returns", "rm_scores"]
    blending = case["trainer"] == "refblend" and config.trainer.v1.refblend.enable
    if config.algorithm.use_kl_in_reward or blending:
        wanted.append("token_level_rewards")
    data = tq.kv_batch_get(keys=keys, partition_id=partition, select_fields=wanted)
    return {
        "input": [
            {k: v.tolist() if isinstance(v, torch.Tensor) else v for k, v in row.items()}
            for row in rows
        ],
        "output": {name: [row.tolist() for row in data[name].unbind()] for name in wanted},
        "metrics": {name: float(value) for name, value in metrics.items()},
        "mode": trainer.trainer_mode,
        "buffer": type(trainer.replay_buffer).__name__,
    }


ray.init(
    num_cpus=2,
    include_dashboard=False,
    object_store_memory=100 * 2**20,
    _temp_dir=scratch,
    log_to_driver=False,
)
with initialize_config_dir(examples, version_base=None):
    queue = compose("refblend").transfer_queue
queue.enable = True
queue.backend.SimpleStorage.num_data_storage_units = 1
tq.init(queue)
try:
    found = [run(number, case) for number, case in enumerate(cases)]
finally:
    tq.close()
    ray.shutdown()
print("\n" + json.dumps(found))

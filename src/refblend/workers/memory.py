"""How much host memory a run needs, estimated before any process starts.

A rough count for the preflight: it is there to refuse a 7B model on a laptop, not to fit the last
gigabyte. Weights on GPUs are not counted; vLLM checks those itself.
"""

from dataclasses import dataclass
from pathlib import Path

from safetensors import safe_open

from refblend.config import RefblendConfig

GIB = 2**30
TRAINER_BASE = 0.5 * GIB
"""Resident memory of a training process beside its tensors (Python, torch, transformers)."""
ENGINE_BASE = 1.0 * GIB
"""The same for a process with vLLM."""
TRAINING_COPIES = 4
"""Weights, gradients and AdamW's two moments."""
BYTES = {"float32": 4, "bfloat16": 2}


@dataclass(frozen=True)
class MemoryNeed:
    """What one role needs on the host."""

    role: str
    size: float
    """Bytes, over all its processes."""
    key: str
    """The configuration key that decides it."""


def count_parameters(model_dir: Path) -> int:
    """Parameters in the safetensors files of a model directory; their data is not read."""
    total = 0
    for path in sorted(model_dir.glob("*.safetensors")):
        with safe_open(path, framework="numpy") as file:
            for name in file.keys():  # noqa: SIM118 - not a mapping
                size = 1
                for side in file.get_slice(name).get_shape():
                    size *= side
                total += size
    return total


def memory_needs(config: RefblendConfig) -> list[MemoryNeed]:
    """The estimate for each role, largest first; roles on GPUs need their process alone."""
    models = config.actor_rollout_ref
    scoring = config.algorithm.ref_quality_score.scoring
    weights = count_parameters(Path(models.model.path))
    key = "actor_rollout_ref.model.path"

    def training(role: str, copies: int, ranks: int, gpus: float) -> MemoryNeed:
        tensors = 0 if gpus else copies * weights * BYTES["float32"]
        return MemoryNeed(role, ranks * TRAINER_BASE + tensors, key)

    def engine(
        role: str, size: int, dtype: str, cache_mb: int, gpus: float, key: str
    ) -> MemoryNeed:
        tensors = 0 if gpus else size * BYTES[dtype] + cache_mb * 2**20
        return MemoryNeed(role, ENGINE_BASE + tensors, key)

    actor, rollout = models.actor.fsdp_config, models.rollout
    needs = [
        MemoryNeed(
            "object store", config.ray.object_store_memory_mb * 2**20, "ray.object_store_memory_mb"
        ),
        training("actor", TRAINING_COPIES, actor.world_size, actor.num_gpus_per_worker),
        engine(
            "rollout",
            weights,
            rollout.dtype,
            rollout.kv_cache_memory_mb,
            rollout.num_gpus,
            "actor_rollout_ref.rollout.kv_cache_memory_mb",
        ),
    ]
    if config.use_critic:
        critic = config.critic.fsdp_config
        needs.append(
            training("critic", TRAINING_COPIES, critic.world_size, critic.num_gpus_per_worker)
        )
    if config.use_reference:
        ref = models.ref.fsdp_config
        needs.append(training("ref", 1, ref.world_size, ref.num_gpus_per_worker))
    if config.use_judge:
        judge = count_parameters(Path(scoring.model_path or ""))
        needs.append(
            engine(
                "judge",
                judge,
                scoring.dtype,
                scoring.kv_cache_memory_mb,
                scoring.num_gpus,
                "algorithm.ref_quality_score.scoring.kv_cache_memory_mb",
            )
        )
    return sorted(needs, key=lambda need: -need.size)

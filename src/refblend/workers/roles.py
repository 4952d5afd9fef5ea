"""The roles of a run's worker processes, one entry each: everything about a role derives from it.

Pools, memory, token budgets, replacement, what is saved and the keys that messages name are read
from this table and the resolved configuration. The memory is a rough count for the preflight: it is
there to refuse a 7B model on a laptop, not to fit the last gigabyte. Weights on GPUs are not
counted; vLLM checks those itself.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

from refblend.config import RefblendConfig
from refblend.rollout.model_dir import count_parameters

GLOBAL_POOL = "global_pool"
MIB = 2**20
TRAINER_BASE = 2.0**29
"""Resident memory of a training process besides its tensors (Python, torch, transformers)."""
ENGINE_BASE = 2.0**30
"""The same for a process with vLLM."""
BYTES = {"float32": 4, "bfloat16": 2}


@dataclass(frozen=True)
class Processes:
    """What the processes of a role ask for."""

    count: int
    threads: int
    """CPU threads of each."""
    gpus: float
    """Of each."""


@dataclass(frozen=True)
class _Role:
    """What the processes of training and of inference have in common."""

    name: str
    """In messages, in the directories of checkpoints and in resource pools."""
    worker: str
    """The plain class, as ``module:class``."""
    section: str
    """The configuration section of the role, as a dotted key."""
    needed: Callable[[RefblendConfig], bool] = lambda config: True
    """Whether a run has the role."""
    remembers: bool = False
    """Whether the processes keep state of a run, so that the next run must reset it."""

    def settings(self, config: RefblendConfig) -> Any:
        """The role's section of the configuration."""
        return _value(config, self.section)

    def pool(self, config: RefblendConfig) -> str:
        """The resource pool of the processes."""
        return getattr(self.settings(config), "resource_pool", GLOBAL_POOL)

    def deadline(self, config: RefblendConfig) -> float | None:
        """Seconds after which a call of this role is given up, not made again; None: no such."""
        return getattr(self.settings(config), "timeout_s", None)


@dataclass(frozen=True)
class TrainingRole(_Role):
    """A group of ranks with a network of torch: its forward pass, perhaps its update."""

    replaceable: bool = False
    """Whether fresh ranks can take over; not from those that learn, which checkpoints save."""
    copies: int = 4
    """Tensors of the weights' size: the weights; for those that learn also gradients and AdamW's
    two moments."""
    budget: str = "ppo_max_token_len_per_gpu"
    """The setting that bounds the tokens of a micro-batch, and so the memory of a pass."""

    memory_key = "actor_rollout_ref.model.path"
    """The configuration key that decides the host memory."""

    @property
    def gpu_key(self) -> str:
        """The configuration key that asks for GPUs."""
        return f"{self.section}.fsdp_config.num_gpus_per_worker"

    @property
    def lower(self) -> str:
        """What to lower when a worker runs out of memory."""
        return f"{self.section}.{self.budget}"

    def token_budget(self, config: RefblendConfig) -> int:
        """Most tokens of a micro-batch of a forward pass."""
        return getattr(self.settings(config), self.budget)

    def processes(self, config: RefblendConfig) -> Processes:
        """The ranks."""
        fsdp = self.settings(config).fsdp_config
        return Processes(fsdp.world_size, fsdp.num_threads, fsdp.num_gpus_per_worker)

    def memory(self, config: RefblendConfig) -> float:
        """Bytes of host memory over all ranks; errors as in :func:`count_parameters`."""
        ranks, weights = self.processes(config), 0
        if not ranks.gpus:
            weights = count_parameters(Path(config.actor_rollout_ref.model.path), self.memory_key)
        return ranks.count * TRAINER_BASE + self.copies * weights * BYTES["float32"]


@dataclass(frozen=True)
class EngineRole(_Role):
    """One process with an inference engine, which can be made again at any time."""

    model: str = ""
    """The configuration key of the engine's model."""
    also_lower: str = ""
    """What limits the engine's memory besides its cache."""

    replaceable = True

    @property
    def gpu_key(self) -> str:
        """The configuration key that asks for GPUs."""
        return f"{self.section}.num_gpus"

    @property
    def memory_key(self) -> str:
        """The configuration key that decides the host memory."""
        return f"{self.section}.kv_cache_memory_mb"

    @property
    def lower(self) -> str:
        """What to lower when the worker runs out of memory."""
        return f"{self.memory_key} (gpu_memory_utilization on a GPU){self.also_lower}"

    def processes(self, config: RefblendConfig) -> Processes:
        """One: tensor-parallel ranks are the engine's own affair."""
        settings = self.settings(config)
        gpus = settings.num_gpus * getattr(settings, "tensor_model_parallel_size", 1)
        return Processes(1, settings.num_threads, gpus)

    def memory(self, config: RefblendConfig) -> float:
        """Bytes of host memory; errors as in :func:`count_parameters`."""
        settings = self.settings(config)
        if getattr(settings, "kind", None) == "http":
            return TRAINER_BASE  # a process that asks, without a model
        if self.processes(config).gpus:
            return ENGINE_BASE
        weights = count_parameters(Path(_value(config, self.model)), self.model)
        return ENGINE_BASE + weights * BYTES[settings.dtype] + settings.kv_cache_memory_mb * MIB


Role = TrainingRole | EngineRole

_TRAINING, _ENGINES = "refblend.workers.fsdp_workers", "refblend.workers.engine_workers"
_ROLLOUT, _JUDGE = "actor_rollout_ref.rollout", "algorithm.ref_quality_score.scoring"

ACTOR = TrainingRole("actor", f"{_TRAINING}:ActorWorker", "actor_rollout_ref.actor", remembers=True)
ROLLOUT = EngineRole(
    "rollout",
    f"{_ENGINES}:RolloutWorker",
    _ROLLOUT,
    model="actor_rollout_ref.model.path",
    also_lower=f", {_ROLLOUT}.max_model_len or data.train_batch_size",
)
CRITIC = TrainingRole(
    "critic", f"{_TRAINING}:CriticWorker", "critic", lambda config: config.use_critic, True
)
REFERENCE = TrainingRole(
    "ref",
    f"{_TRAINING}:ReferenceWorker",
    "actor_rollout_ref.ref",
    lambda config: config.use_reference,
    replaceable=True,
    copies=1,
    budget="max_token_len_per_gpu",
)
JUDGE = EngineRole(
    "judge",
    f"{_ENGINES}:JudgeWorker",
    _JUDGE,
    lambda config: config.use_judge,
    remembers=True,
    model=f"{_JUDGE}.model_path",
    also_lower=f" or {_JUDGE}.max_model_len",
)

ROLES: dict[str, Role] = {role.name: role for role in (ACTOR, ROLLOUT, CRITIC, REFERENCE, JUDGE)}
"""All roles by name, in the order in which they take their places in a pool."""


def roles_of(config: RefblendConfig) -> list[Role]:
    """The roles that a run has, in the order of :data:`ROLES`."""
    return [role for role in ROLES.values() if role.needed(config)]


def _value(config: RefblendConfig, key: str) -> Any:
    """What a dotted key holds."""
    return reduce(getattr, key.split("."), config)

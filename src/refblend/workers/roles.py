"""The roles of a run's worker processes: everything about a role derives from this table.

The memory is a rough count for the preflight, there to refuse a 7B model on a laptop. Weights on
GPUs are not counted; vLLM checks those itself.
"""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

from refblend.config import RefblendConfig
from refblend.config.scoring import SCORING_KEY
from refblend.rollout.model_dir import count_parameters

GLOBAL_POOL = "global_pool"
MODEL = "actor_rollout_ref.model.path"
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
class Role:
    """A kind of process: a group of ranks with a network of torch, or inference engines."""

    name: str
    """In messages, in the directories of checkpoints and in resource pools."""
    worker: str
    """The plain class, as ``module:class``."""
    section: str
    """The configuration section of the role, as a dotted key."""
    gpu_key: str
    """The configuration key that asks for GPUs."""
    memory_key: str
    """The configuration key that decides the host memory."""
    lower: str
    """What to lower when a worker runs out of memory."""
    needed: Callable[[RefblendConfig], bool] = lambda config: True
    """Whether a run has the role."""
    engine_model: str | None = None
    """The configuration key of an engine's model; None: a group of ranks."""
    learns: bool = False
    """Whether the processes hold what was learned: checkpoints save it, and no fresh ones can take
    over."""
    remembers: bool = False
    """Whether the processes keep state of a run, so that the next run must reset it."""
    budget: str = ""
    """Of ranks: the setting that bounds the tokens of a micro-batch, and so a pass's memory."""

    def settings(self, config: RefblendConfig) -> Any:
        """The role's section of the configuration."""
        return value_of(config, self.section)

    def pool(self, config: RefblendConfig) -> str:
        """The resource pool of the processes."""
        return getattr(self.settings(config), "resource_pool", GLOBAL_POOL)

    def deadline(self, config: RefblendConfig) -> float | None:
        """Seconds after which a call of this role is given up, not made again; None: no such."""
        return getattr(self.settings(config), "timeout_s", None)

    def processes(self, config: RefblendConfig) -> Processes:
        """The ranks; or one process per engine, whose tensor-parallel ranks are its own."""
        settings = self.settings(config)
        if self.engine_model is None:
            fsdp = settings.fsdp_config
            return Processes(fsdp.world_size, fsdp.num_threads, fsdp.num_gpus_per_worker)
        gpus = settings.num_gpus * settings.tensor_model_parallel_size
        return Processes(settings.num_engines, settings.num_threads, gpus)

    def shares_gpu(self, config: RefblendConfig) -> bool:
        """Whether others may run on a process's GPU: vLLM sizes its cache by what is free."""
        return self.processes(config).gpus % 1 > 0

    def sleeps(self, config: RefblendConfig) -> bool:
        """Whether the engines give memory back: only where others may take it."""
        return bool(getattr(self.settings(config), "sleep", False)) and self.shares_gpu(config)

    def copies(self, config: RefblendConfig) -> int:
        """Tensors of the model's size that ranks hold: its weights, and for what is trained
        gradients and AdamW's two moments. An adapter's (LoRA) are not counted."""
        return 4 if self.learns and not (self.name == "actor" and config.use_lora) else 1

    def frozen_copies(self, config: RefblendConfig) -> int:
        """The reference policy's weights beside the actor's own; with LoRA they are the same."""
        return int(self.name == "actor" and config.reference_in_actor and not config.use_lora)

    def memory(self, config: RefblendConfig) -> float:
        """Bytes of host memory over all processes."""
        asked, settings = self.processes(config), self.settings(config)
        engine, key = self.engine_model is not None, self.engine_model or MODEL
        path = value_of(config, key)
        # An endpoint is only asked, and an engine of the user's own may hold no model.
        if engine and (path is None or getattr(settings, "kind", None) == "http"):
            return asked.count * TRAINER_BASE
        # An engine on GPUs keeps none in host memory, but for a judge's while it sleeps.
        absent = engine and asked.gpus and not (self.name == "judge" and settings.sleep)
        weights = 0 if absent else count_parameters(Path(path), key)
        if not engine:
            # Before GPUs have their shards, rank 0 reads the whole model.
            remote = config.actor_rollout_ref.model.trust_remote_code
            on_gpus = asked.count if remote else 1
            held = self.copies(config) + self.frozen_copies(config)
            copies = on_gpus if asked.gpus else held
            return asked.count * TRAINER_BASE + copies * weights * BYTES["float32"]
        cache = 0 if asked.gpus else settings.kv_cache_memory_mb * MIB
        return asked.count * (ENGINE_BASE + weights * BYTES[settings.dtype] + cache)


def _ranks(name: str, worker: str, section: str, budget: str, **more: Any) -> Role:
    key = f"{section}.fsdp_config.num_gpus_per_worker"
    worker = f"refblend.workers.fsdp_workers:{worker}"
    return Role(name, worker, section, key, MODEL, f"{section}.{budget}", budget=budget, **more)


def _engine(name: str, worker: str, section: str, model: str, **more: Any) -> Role:
    cache = f"{section}.kv_cache_memory_mb"
    lower = f"{cache} (gpu_memory_utilization on a GPU)"
    worker = f"refblend.workers.engine_workers:{worker}"
    return Role(
        name, worker, section, f"{section}.num_gpus", cache, lower, engine_model=model, **more
    )


_LEARNING: dict[str, Any] = {
    "budget": "ppo_max_token_len_per_gpu",
    "learns": True,
    "remembers": True,
}

ACTOR = _ranks("actor", "ActorWorker", "actor_rollout_ref.actor", **_LEARNING)
ROLLOUT = _engine("rollout", "RolloutWorker", "actor_rollout_ref.rollout", MODEL)
CRITIC = _ranks(
    "critic", "CriticWorker", "critic", needed=lambda config: config.use_critic, **_LEARNING
)
REFERENCE = _ranks(
    "ref",
    "ReferenceWorker",
    "actor_rollout_ref.ref",
    "max_token_len_per_gpu",
    needed=lambda config: config.use_reference and not config.reference_in_actor,
)
JUDGE = _engine(
    "judge",
    "JudgeWorker",
    SCORING_KEY,
    f"{SCORING_KEY}.model_path",
    needed=lambda config: config.use_judge and not config.shares_judge,
    remembers=True,
)

ROLES: dict[str, Role] = {role.name: role for role in (ACTOR, ROLLOUT, CRITIC, REFERENCE, JUDGE)}
"""All roles by name, in the order in which they take their places in a pool."""


def roles_of(config: RefblendConfig) -> list[Role]:
    """The roles that a run has, in the order of :data:`ROLES`."""
    return [role for role in ROLES.values() if role.needed(config)]


def value_of(config: RefblendConfig, key: str) -> Any:
    """What a dotted key holds."""
    return reduce(getattr, key.split("."), config)


def changed(config: RefblendConfig, changes: Mapping[str, Any]) -> RefblendConfig:
    """The configuration with other values of dotted keys."""
    tree = config.resolved()
    for key, value in changes.items():
        *path, last = key.split(".")
        reduce(operator.getitem, path, tree)[last] = value
    return RefblendConfig.model_validate(tree)


def with_absolute_paths(config: RefblendConfig) -> RefblendConfig:
    """The configuration for processes of an existing cluster, which have another directory."""
    if config.ray.address is None:
        return config
    scoring = config.algorithm.ref_quality_score.scoring
    keys = [MODEL, "trainer.default_local_dir"]
    keys += [f"{SCORING_KEY}.model_path"] if scoring.local_model else []
    keys += [f"{SCORING_KEY}.templates"] if Path(scoring.templates).is_file() else []
    return changed(config, {key: str(Path(value_of(config, key)).absolute()) for key in keys})

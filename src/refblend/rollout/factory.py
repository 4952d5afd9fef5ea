"""The engines by name; the library of one is imported only when it is started."""

from dataclasses import fields
from typing import Any

from refblend.config import RefblendConfig
from refblend.config.actor_rollout_ref import EngineConfig
from refblend.errors import ConfigError
from refblend.rollout.base import EngineOptions, RolloutEngine
from refblend.seeding import derive_seed


def start_engine(name: str, options: EngineOptions) -> RolloutEngine:
    """Start the engine ``vllm`` or ``hf``; ConfigError for others, ModelError for the directory."""
    if name == "vllm":
        from refblend.rollout.vllm_engine import VllmEngine

        return VllmEngine(options)
    if name == "hf":
        from refblend.rollout.hf_engine import HfEngine

        return HfEngine(options)
    raise ConfigError(f"unknown rollout engine {name!r}", "Use vllm or hf.")


def own_options(config: EngineConfig) -> dict[str, Any]:
    """The :class:`EngineOptions` that a section of the configuration has by their names."""
    names = {field.name for field in fields(EngineOptions)} - {"model_path", "seed"}
    return {name: getattr(config, name) for name in names & type(config).model_fields.keys()}


def start_rollout(
    config: RefblendConfig, model_path: str, at_least: int = 0, adapter: bool = False
) -> RolloutEngine:
    """Start the rollout engine of a run with some weights, to train or to test its actor.

    There is room for ``at_least`` tokens of prompt and answer, whatever ``rollout.max_model_len``
    says; ModelError if the model has fewer positions. With ``adapter`` pushes bring an adapter.
    """
    rollout, seed = config.actor_rollout_ref.rollout, config.actor_rollout_ref.rollout.seed
    model = config.actor_rollout_ref.model
    longest = rollout.max_model_len and max(rollout.max_model_len, at_least)
    options = EngineOptions(
        model_path=model_path,
        lora_rank=model.lora_rank if adapter else 0,
        lora_alpha=model.lora_alpha,
        seed=derive_seed(config.trainer.seed, "rollout engine") if seed is None else seed,
        **own_options(rollout) | {"max_model_len": longest},
    )
    return start_engine(rollout.name, options)

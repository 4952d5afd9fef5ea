"""The engines by name; the library of one is imported only when it is started."""

from refblend.errors import ConfigError
from refblend.rollout.base import EngineOptions, RolloutEngine


def start_engine(name: str, options: EngineOptions) -> RolloutEngine:
    """Start the engine of that name, ``vllm`` or ``hf``.

    Raises:
        ConfigError: the name is another.
        ModelError: the model's directory cannot be used.
    """
    if name == "vllm":
        from refblend.rollout.vllm_engine import VllmEngine

        return VllmEngine(options)
    if name == "hf":
        from refblend.rollout.hf_engine import HfEngine

        return HfEngine(options)
    raise ConfigError(f"unknown rollout engine {name!r}", "Use vllm or hf.")

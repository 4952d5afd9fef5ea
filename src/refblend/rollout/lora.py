"""A vLLM engine that holds the base's weights once, and an adapter (LoRA) beside them.

The actor's requests carry the adapter, those of a judge that is the reference model do not
(:class:`BaseOfEngine`). The two never meet in one batch: there vLLM's CPU build gives rows without
an adapter that of its last slot.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from refblend.files import write_json
from refblend.rollout.base import Generation, GenerationRequest

if TYPE_CHECKING:
    import torch

RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""For which vLLM has room."""


def room_for(rank: int) -> int:
    """The smallest of vLLM's ranks that holds an adapter of this one."""
    return next(room for room in RANKS if room >= rank)


def write_adapter(
    tensors: "Mapping[str, torch.Tensor]", rank: int, alpha: float, directory: Path
) -> None:
    """Write an adapter whose names are peft's, for vLLM, which reads files only."""
    from safetensors.torch import save_file

    layers = sorted({name.split(".")[-3] for name in tensors})
    record = {"peft_type": "LORA", "r": rank, "lora_alpha": alpha, "target_modules": layers}
    write_json(directory / "adapter_config.json", record)
    save_file(dict(tensors), directory / "adapter_model.safetensors")


class AdapterEngine(Protocol):
    """An engine that can leave its adapter out."""

    max_model_len: int

    def generate(
        self, requests: Sequence[GenerationRequest], base: bool = False
    ) -> list[Generation]:
        """Answer all requests, with the adapter or by the ``base``."""
        ...


class BaseOfEngine:
    """The engine without its adapter, for a judge. The rollout owns the engine and its cache."""

    def __init__(self, engine: AdapterEngine) -> None:
        self._engine = engine
        self.max_model_len = engine.max_model_len
        self.weight_version = 0

    def generate(self, requests: Sequence[GenerationRequest]) -> list[Generation]:
        """Answer all requests, in their order, by the base."""
        return self._engine.generate(requests, base=True)

    def load_weights(self, weights: "Mapping[str, torch.Tensor]", version: int) -> None:
        """Never: the base is frozen."""
        raise NotImplementedError("the base of an adapter is frozen: it takes no weights")

    def reset_prefix_cache(self) -> None:
        """Nothing: each push of an adapter resets the cache."""

    def prefix_cache_hit_rate(self) -> float | None:
        """None: the engine counts the rollout's prompts, too."""
        return None

    def shutdown(self) -> None:
        """Nothing: the rollout ends its engine."""

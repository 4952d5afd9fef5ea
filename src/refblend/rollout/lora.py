"""Adapters (LoRA) for a vLLM engine, which holds the base's weights once."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from refblend.files import write_json

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

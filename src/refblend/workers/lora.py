"""LoRA (arXiv 2106.09685) by peft: a frozen base, and an adapter W + s·B·A that is trained.

With the adapter off the network is the base, so it is the reference policy too. States become plain
weights or peft's file format without touching the network, which FSDP may have sharded.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from refblend.config.actor_rollout_ref import ModelConfig
from refblend.errors import CheckpointError, ConfigError

ADAPTER_DIR = "lora_adapter"
"""Below the actor's checkpoint, as in verl: a directory that peft loads."""
WEIGHTS = "adapter_model.safetensors"
_NAME_LAYERS = "Name linear layers of the model, such as q_proj, or write all-linear."
_BASE, _A, _B, _PREFIX = ".base_layer.", ".lora_A.", ".lora_B.", "base_model.model."


def add_adapter(lm: nn.Module, model: ModelConfig, seed: int) -> None:
    """Freeze ``lm`` and add an adapter with B = 0; ConfigError if no layer is named."""
    from peft import LoraConfig, inject_adapter_in_model

    config = LoraConfig(
        r=model.lora_rank,
        lora_alpha=model.lora_alpha,  # type: ignore[arg-type,unused-ignore]  # verl allows 0.5
        target_modules=model.target_modules,
        base_model_name_or_path=model.path,
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            inject_adapter_in_model(config, lm)
        except ValueError as error:
            raise ConfigError(
                f"actor_rollout_ref.model.target_modules={model.target_modules}: {error}",
                _NAME_LAYERS,
            ) from None
    if hasattr(getattr(lm, "lm_head", None), "lora_A"):
        raise ConfigError(
            f"actor_rollout_ref.model.target_modules={model.target_modules} adapts the output "
            "head, which the trainer reads without its adapter",
            _NAME_LAYERS,
        )


@contextmanager
def adapter_off(lm: nn.Module) -> Iterator[None]:
    """Within the block ``lm`` computes what its base computes, bit for bit."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    layers = [module for module in lm.modules() if isinstance(module, BaseTunerLayer)]
    for layer in layers:
        layer._disable_adapters = True
    try:
        yield
    finally:
        for layer in layers:
            layer._disable_adapters = False


def merged(
    state: Mapping[str, Tensor], model: ModelConfig, dtype: torch.dtype | None = None
) -> dict[str, Tensor]:
    """Weights W + s·B·A of a state, under Hugging Face names: float32, or rounded to ``dtype``."""
    scale, found = model.lora_alpha / model.lora_rank, {}
    for name, tensor in state.items():
        if _A in name or _B in name:
            continue
        a, b = (name.replace(f"{_BASE}weight", f"{part}default.weight") for part in (_A, _B))
        if _BASE in name and a != name:
            tensor = tensor + scale * (state[b] @ state[a])
        found[name.replace(_BASE, ".")] = tensor.to(dtype or torch.float32)
    return found


def adapter_of(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The adapter's tensors under the names of peft's files."""
    return {
        _PREFIX + name.replace(".default.", "."): tensor
        for name, tensor in state.items()
        if _A in name or _B in name
    }


def save_adapter(lm: Any, state: Mapping[str, Tensor], directory: Path) -> None:
    """Write the adapter as peft does."""
    directory.mkdir(parents=True, exist_ok=True)
    lm.peft_config["default"].save_pretrained(directory)
    tensors = {name: tensor.contiguous() for name, tensor in adapter_of(state).items()}
    save_file(tensors, directory / WEIGHTS, metadata={"format": "pt"})


def load_adapter(lm: nn.Module, directory: Path) -> None:
    """Continue with an adapter that :func:`save_adapter` wrote; CheckpointError for another one."""
    remedy = "Resume with the LoRA settings that the checkpoint was written with."
    if not (directory / WEIGHTS).is_file():
        raise CheckpointError(f"{directory} holds no adapter", remedy)
    saved = load_file(directory / WEIGHTS)
    own = {name: p for name, p in lm.named_parameters() if p.requires_grad}
    names = dict(zip(adapter_of(own), own, strict=True))
    shapes = {name: own[names[name]].shape for name in names}
    if {name: tensor.shape for name, tensor in saved.items()} != shapes:
        raise CheckpointError(f"{directory} holds an adapter of another shape", remedy)
    with torch.no_grad():
        for name, tensor in saved.items():
            own[names[name]].copy_(tensor)

"""A model with the shape of Qwen2.5-0.5B and random weights, and the table of what was measured.

``REFBLEND_GPU_TEST_DEVICE=cpu`` runs the same tests without a GPU, slowly. The table is printed at
the end, and written to ``REFBLEND_GPU_TEST_TABLE`` where that names a file.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from refblend.config import RefblendConfig

HALF_BILLION = {
    "vocab_size": 151936,
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "initializer_range": 0.02,
}
"""The shape of Qwen2.5-0.5B: 494 million parameters, embeddings tied."""


@pytest.fixture(scope="session")
def device() -> torch.device:
    """The device under test."""
    name = os.environ.get("REFBLEND_GPU_TEST_DEVICE", "cuda")
    if name == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device; REFBLEND_GPU_TEST_DEVICE=cpu runs it slowly without one")
    return torch.device(name)


@pytest.fixture(scope="session")
def half_billion_dir(device: torch.device, make_tiny_model: Callable[..., Path]) -> Path:
    """The model's directory, in float32; its tokenizer knows only the first few hundred tokens."""
    return make_tiny_model(0, **HALF_BILLION)


@pytest.fixture
def worker_config(
    tiny_config: Callable[..., RefblendConfig], half_billion_dir: Path, device: torch.device
) -> Callable[[str], RefblendConfig]:
    """``worker_config(dtype)`` → a configuration whose actor computes in that precision."""
    gpus = 1.0 if device.type == "cuda" else 0.0
    threads = os.cpu_count() or 1

    def make(dtype: str) -> RefblendConfig:
        fsdp = f"{{param_dtype: {dtype}, num_gpus_per_worker: {gpus}, num_threads: {threads}}}"
        return tiny_config(
            f"actor_rollout_ref.model.path={half_billion_dir}",
            f"actor_rollout_ref.actor.fsdp_config={fsdp}",
            "actor_rollout_ref.actor.optim.lr=1e-5",
            "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=512",
        )

    return make


@pytest.fixture(scope="session")
def table(device: torch.device) -> Iterator[Callable[[str, str], None]]:
    """``table(what, measured)`` adds a row."""
    name = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    lines = [f"Device: {name}; torch {torch.__version__}", "", "| what | measured |", "|:--|:--|"]
    yield lambda what, measured: lines.append(f"| {what} | {measured} |")
    text = "\n".join(lines)
    print(f"\n{text}")
    if target := os.environ.get("REFBLEND_GPU_TEST_TABLE"):
        Path(target).write_text(text + "\n", encoding="utf-8")

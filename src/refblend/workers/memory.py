"""How much host memory a run needs, estimated before any process starts.

A rough count for the preflight: it is there to refuse a 7B model on a laptop, not to fit the last
gigabyte. Weights on GPUs are not counted; vLLM checks those itself.
"""

from dataclasses import dataclass
from math import prod
from pathlib import Path

from safetensors import SafetensorError, safe_open

from refblend.errors import ModelError

MIB = 2**20
GIB = 2**30
TRAINER_BASE = 0.5 * GIB
"""Resident memory of a training process beside its tensors (Python, torch, transformers)."""
ENGINE_BASE = 1.0 * GIB
"""The same for a process with vLLM."""
BYTES = {"float32": 4, "bfloat16": 2}


@dataclass(frozen=True)
class MemoryNeed:
    """What one role needs on the host."""

    role: str
    size: float
    """Bytes, over all its processes."""
    key: str
    """The configuration key that decides it."""


def count_parameters(model_dir: Path, key: str) -> int:
    """Parameters in the safetensors files of a model directory; their data is not read.

    Args:
        model_dir: the directory.
        key: the configuration key that names it, for the message.

    Raises:
        ModelError: a file is truncated, or is not a safetensors file.
    """
    total = 0
    for path in sorted(model_dir.glob("*.safetensors")):
        try:
            with safe_open(path, framework="numpy") as file:
                for name in file.keys():  # noqa: SIM118 - not a mapping
                    total += prod(file.get_slice(name).get_shape())
        except (OSError, SafetensorError) as error:
            raise ModelError(
                f"{key}: {path} cannot be read as safetensors, it may be truncated ({error})",
                "Copy or download the file again, or train the model anew.",
            ) from None
    return total

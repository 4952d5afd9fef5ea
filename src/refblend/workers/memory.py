"""How much host memory a run needs, estimated before any process starts.

A rough count for the preflight: it is there to refuse a 7B model on a laptop, not to fit the last
gigabyte. Weights on GPUs are not counted; vLLM checks those itself.
"""

from dataclasses import dataclass

MIB = 2**20
GIB = 2**30
TRAINER_BASE = 0.5 * GIB
"""Resident memory of a training process besides its tensors (Python, torch, transformers)."""
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

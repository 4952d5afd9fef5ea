"""The actor's weights in memory that the engines of its machine share.

The actor's rank packs them into memory without a name, which is gone with its last process. The
user's other processes open it through ``/proc``; engines elsewhere get its bytes from Ray.
"""

import os
import secrets
import warnings
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

ALIGNMENT = 64
"""Bytes: a cache line. The tensors of a fused layer lie one right behind the other all the same,
because rows are multiples of it in every model worth training."""


@dataclass(frozen=True)
class PackedWeights:
    """What an engine needs to read the weights; small, it travels with the call."""

    path: str
    """Of the memory, for processes of the same user and machine."""
    token: str
    """Of this buffer: another one may come to have the same path."""
    size: int
    """In bytes."""
    dtype: torch.dtype
    places: Mapping[str, tuple[int, tuple[int, ...]]]
    """Each tensor's offset in bytes, and shape, by its Hugging Face name."""

    def tensors(self, memory: Tensor) -> dict[str, Tensor]:
        """Views of the weights in ``memory``, the buffer's bytes."""
        width = self.dtype.itemsize
        return {
            name: memory[offset : offset + width * int(np.prod(shape))].view(self.dtype).view(shape)
            for name, (offset, shape) in self.places.items()
        }


class WeightBuffer:
    """The actor's side: made at the first push, filled again at each."""

    def __init__(self) -> None:
        self._packed: PackedWeights | None = None
        self._memory = torch.empty(0, dtype=torch.uint8)

    def pack(self, weights: Mapping[str, Tensor], dtype: torch.dtype) -> PackedWeights:
        """Copy ``weights`` into the buffer, rounded to ``dtype``; OSError if no memory is left."""
        if self._packed is None:
            self._allocate(weights, dtype)
        assert self._packed is not None
        for name, view in self._packed.tensors(self._memory).items():
            view.copy_(weights[name])
        return self._packed

    def bytes(self) -> NDArray[np.uint8]:
        """The whole buffer, for engines on other machines; it changes with the next push."""
        return self._memory.numpy()

    def _allocate(self, weights: Mapping[str, Tensor], dtype: torch.dtype) -> None:
        places, size = {}, 0
        for name, tensor in weights.items():
            places[name] = size, tuple(tensor.shape)
            size += -(-tensor.numel() * dtype.itemsize // ALIGNMENT) * ALIGNMENT
        self._file = os.memfd_create("refblend-weights", os.MFD_CLOEXEC)
        os.posix_fallocate(self._file, 0, size)
        path = f"/proc/{os.getpid()}/fd/{self._file}"
        self._packed = PackedWeights(path, secrets.token_hex(8), size, dtype, places)
        self._memory = _mapped(path, size)

    def __del__(self) -> None:
        if self._packed is not None:
            os.close(self._file)


class MappedWeights:
    """An engine's side: keeps the buffer mapped between pushes."""

    def __init__(self) -> None:
        self._token = ""
        self._memory = torch.empty(0, dtype=torch.uint8)

    def tensors(
        self, packed: PackedWeights, received: NDArray[np.uint8] | None
    ) -> dict[str, Tensor]:
        """Views of the weights, valid until the next push; ``received`` on another machine."""
        if received is not None:
            with warnings.catch_warnings():
                # Ray's arrays are read-only, and torch knows no such tensors; nobody writes here.
                warnings.simplefilter("ignore", UserWarning)
                return packed.tensors(torch.from_numpy(received))
        if packed.token != self._token:
            self._memory, self._token = _mapped(packed.path, packed.size), packed.token
        return packed.tensors(self._memory)


def _mapped(path: str, size: int) -> Tensor:
    """The buffer's bytes; what one process writes, all read."""
    return torch.from_file(path, shared=True, size=size, dtype=torch.uint8)

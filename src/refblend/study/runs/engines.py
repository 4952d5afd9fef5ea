"""The engines that test an actor: as many as it was trained with, each a process of its own.

There is no Ray here: testing starts in seconds, and needs neither ranks nor a judge. A single
engine runs in this process.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from refblend import runtime
from refblend.config import RefblendConfig
from refblend.errors import WorkerError
from refblend.rollout.base import Generation, GenerationRequest, RolloutEngine, split_rows, work_of
from refblend.rollout.factory import start_rollout

_engine: RolloutEngine
"""Of this process, where it is one of several."""


class Engines:
    """Engines with the weights of one actor, which share every batch."""

    def __init__(self, config: RefblendConfig, model: Path, at_least: int) -> None:
        """Start all at once; arguments and errors as those of :func:`start_rollout`."""
        self.config = config
        count, devices = shares_of(config)
        self._alone: RolloutEngine | None = None
        self._processes: list[ProcessPoolExecutor] = []
        if count == 1:
            self._alone = start_rollout(config, str(model), at_least)
            return
        self._processes = [ProcessPoolExecutor(1, get_context("spawn")) for _ in range(count)]
        try:
            self._all(_start, [(config, str(model), at_least, own) for own in devices])
        except BaseException:
            self.shutdown()
            raise

    def generate(self, requests: Sequence[GenerationRequest]) -> list[Generation]:
        """Answer all requests, in their order."""
        if self._alone is not None:
            return self._alone.generate(requests)
        shares = split_rows(work_of(requests), len(self._processes))
        given = [([requests[row] for row in share],) for share in shares]
        found: dict[int, Generation] = {}
        for share, answers in zip(shares, self._all(_generate, given), strict=True):
            found.update(zip(share, answers, strict=True))
        return [found[row] for row in range(len(requests))]

    def load(self, model: Path, version: int) -> None:
        """Take over the weights of another model directory."""
        if self._alone is not None:
            self._alone.load_weights(read_weights(model), version)
        else:
            self._all(_load, [(model, version)] * len(self._processes))

    def shutdown(self) -> None:
        """End all engines."""
        if self._alone is not None:
            self._alone.shutdown()
        for process in self._processes:
            process.shutdown(cancel_futures=True)

    def _all(self, call: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Call a function in every process; the answers in the order of the engines.

        Raises:
            WorkerError: a process died.
            Exception: what the function raised.
        """
        asked: list[Future[Any]] = [
            process.submit(call, *own)
            for process, own in zip(self._processes, arguments, strict=True)
        ]
        try:
            return [future.result() for future in asked]
        except BrokenProcessPool:
            raise WorkerError(
                f"one of {len(asked)} rollout engines died",
                "Look at the machine's memory, or test with fewer: rollout.num_engines in the "
                "run's config.json.",
            ) from None


def shares_of(config: RefblendConfig) -> tuple[int, list[str | None]]:
    """Number of engines, and the devices of each as ``CUDA_VISIBLE_DEVICES`` names them.

    On GPUs there are no more engines than this machine has room for: a run may have used others.
    """
    rollout = config.actor_rollout_ref.rollout
    count, each = rollout.num_engines, rollout.tensor_model_parallel_size
    if count == 1 or not rollout.num_gpus:
        return count, [None] * count
    import torch

    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    devices = named.split(",") if named else list(map(str, range(torch.cuda.device_count())))
    count = max(1, min(count, len(devices) // each))
    return count, [",".join(devices[i * each : (i + 1) * each]) for i in range(count)]


def _start(config: RefblendConfig, model: str, at_least: int, devices: str | None) -> None:
    global _engine
    if devices is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = devices
    runtime.prepare_process(config.actor_rollout_ref.rollout.num_threads)
    _engine = start_rollout(config, model, at_least)


def _generate(requests: Sequence[GenerationRequest]) -> list[Generation]:
    return _engine.generate(requests)


def _load(model: Path, version: int) -> None:
    _engine.load_weights(read_weights(model), version)


def read_weights(model: Path) -> dict[str, Any]:
    """All tensors of a model directory, by Hugging Face names."""
    from safetensors.torch import load_file

    files = sorted(model.glob("*.safetensors"))
    return {name: tensor for file in files for name, tensor in load_file(file).items()}

"""Faults inside the processes of a run: a function of its choice misbehaves on some of its calls.

Python imports a module of this name when it starts, in the driver as in every worker of Ray; the
tests put this folder on the PYTHONPATH of a run, and the environment says what to do::

    SABOTAGE=refblend.workers.fsdp_workers:ActorWorker.loss   the function
    SABOTAGE_FAULT=out_of_memory                              a function of this module
    SABOTAGE_CALLS=3 or 3+                                    its third call, or all from the third
    SABOTAGE_FOLDER=<folder>       counts the calls of all processes; there the disk is filled too
    SABOTAGE_CLOCK=86400           seconds by which time.time jumps, once ...
    SABOTAGE_CLOCK_AFTER=<file>    ... this file exists

A fault is given the call that it replaces and makes it, or does not.
"""

import errno
import importlib.abc
import importlib.machinery
import importlib.util
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

FOLDER = Path(os.environ.get("SABOTAGE_FOLDER", "."))


def out_of_memory(call: Callable[[], Any], *_: Any) -> Any:
    """As a GPU without memory answers."""
    import torch

    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


def host_out_of_memory(call: Callable[[], Any], *_: Any) -> Any:
    """The error of torch's own allocator of the host: more is asked for than any machine has."""
    import torch

    torch.empty(2**55)


def defect(call: Callable[[], Any], *_: Any) -> Any:
    """An error that nobody foresaw."""
    raise KeyError("sabotage")


def nan_loss(call: Callable[[], Any], *_: Any) -> Any:
    """Of ``loss``: (loss, metrics)."""
    loss, metrics = call()
    return loss * math.nan, metrics


def nan_gradient(call: Callable[[], Any], network: Any, *_: Any) -> Any:
    """Of ``clip_gradients(network, …)``: one number of one gradient."""
    gradient = next(p.grad for p in network.parameters() if p.grad is not None)
    gradient.view(-1)[0] = math.nan
    return call()


def nan_matrix(call: Callable[[], Any], *_: Any) -> Any:
    """Of a forward pass: (rows, matrices), the first one of them."""
    rows, matrices = call()
    matrices[0][0] = math.nan
    return rows, matrices


def nan_score(call: Callable[[], Any], *_: Any) -> Any:
    """Of what makes a JudgeResult."""
    from dataclasses import replace

    return replace(call(), score=math.nan)


def nan_reward(call: Callable[[], Any], *_: Any) -> Any:
    """Of a user's reward function."""
    return call() | {"score": math.nan}


def full_disk(call: Callable[[], Any], *_: Any) -> Any:
    """Fill the disk of the folder to the last byte, then go on."""
    with open(FOLDER / "filler", "wb", buffering=0) as stream:
        size = 2**20
        while size:
            try:
                stream.write(bytes(size))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                size //= 2
    return call()


def read_only(call: Callable[[], Any], *_: Any) -> Any:
    """Make the folder read-only for whatever is opened from now on, then go on."""
    subprocess.run(["mount", "--bind", FOLDER, FOLDER], check=True)
    subprocess.run(["mount", "-o", "remount,ro,bind", FOLDER], check=True)
    return call()


def sabotaged(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with the fault on the calls that the environment names."""
    fault: Callable[..., Any] = globals()[os.environ["SABOTAGE_FAULT"]]
    first = os.environ["SABOTAGE_CALLS"]
    counter = FOLDER.parent / f"{FOLDER.name}.calls"

    def call(*args: Any, **kwargs: Any) -> Any:
        # A byte for each call: appending is atomic between processes.
        with open(counter, "ab") as stream:
            stream.write(b".")
        count = counter.stat().st_size
        due = count >= int(first[:-1]) if first.endswith("+") else count == int(first)
        if not due:
            return function(*args, **kwargs)
        return fault(lambda: function(*args, **kwargs), *args)

    return call


class Saboteur(importlib.abc.MetaPathFinder):
    """Replaces the function as soon as its module is imported."""

    def __init__(self, target: str) -> None:
        self.module, self.path = target.split(":")

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self.module:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.loader is not None
        execute = spec.loader.exec_module

        def execute_and_sabotage(module: ModuleType) -> None:
            execute(module)
            *owners, attribute = self.path.split(".")
            owner: Any = module
            for part in owners:
                owner = getattr(owner, part)
            setattr(owner, attribute, sabotaged(getattr(owner, attribute)))

        spec.loader.exec_module = execute_and_sabotage  # type: ignore[method-assign]
        return spec


def jump(seconds: float, after: Path) -> None:
    """Let the clock of the wall, not the monotonic one, jump once the file exists."""
    real, real_ns = time.time, time.time_ns
    time.time = lambda: real() + seconds * after.exists()
    time.time_ns = lambda: real_ns() + int(seconds * 1e9) * after.exists()


if "SABOTAGE" in os.environ:
    sys.meta_path.insert(0, Saboteur(os.environ["SABOTAGE"]))
if "SABOTAGE_CLOCK" in os.environ:
    jump(float(os.environ["SABOTAGE_CLOCK"]), Path(os.environ["SABOTAGE_CLOCK_AFTER"]))

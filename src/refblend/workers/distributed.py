"""FSDP2 (``fully_shard``): process group, sharding, gathering, saving and restoring.

A single process on CUDA is a group of one: FSDP2 then keeps float32 master weights, computes in
``param_dtype`` and reduces in float32; what is frozen has ``param_dtype`` alone. On the CPU a
single process has no group and no shards.
"""

import contextlib
import os
import shutil
import socket
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from safetensors.torch import save_file
from torch import Tensor
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from refblend.config import RefblendConfig
from refblend.config.actor_rollout_ref import FsdpConfig
from refblend.files import OPTIMIZER_FILE
from refblend.workers.networks import LmNetwork

OPTIMIZER_SHARDS = "optimizer"
"""Directory of the state that each rank wrote by itself."""
WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)
"""States are gathered from all ranks, so that they fit any number of them."""

Address = tuple[str, int, int | None]
"""Host and port where the ranks of a group meet, and the first rank's listening socket there; None:
somebody else serves."""


def pick_device(config: FsdpConfig) -> torch.device:
    """The CUDA device that was reserved for this process, or the CPU."""
    return torch.device("cuda" if config.num_gpus_per_worker > 0 else "cpu")


def init_process_group(
    rank: int, config: FsdpConfig, address: Address | None, run: RefblendConfig
) -> None:
    """Join the group: gloo on the CPU, nccl on GPUs; a single process on the CPU needs none.

    A user's own variables win over ``ray.interface``.
    """
    backend = "nccl" if pick_device(config).type == "cuda" else "gloo"
    if config.world_size == 1:
        if backend == "nccl" and not dist.is_initialized():
            dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
        return
    assert address is not None, "several ranks meet somewhere"
    (host, port, listener), timeout = address, timedelta(seconds=run.trainer.worker_timeout_s)
    serves = rank == 0 and listener is not None
    store = dist.TCPStore(
        host,
        port,
        is_master=serves,
        wait_for_workers=False,
        timeout=timeout,
        master_listen_fd=listener if serves else None,
    )
    interface = run.ray.interface
    if host == "127.0.0.1":
        interface = next(name for _, name in socket.if_nameindex() if name.startswith("lo"))
    if interface:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
        os.environ.setdefault("NCCL_SOCKET_IFNAME", f"={interface}")  # without "=" it is a prefix
    size = config.world_size
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timeout)


Network = TypeVar("Network", bound=LmNetwork)


def shard(network: Network, config: FsdpConfig) -> Network:
    """Move to the device and shard every transformer block over the group.

    Several ranks are sharded empty and receive what rank 0 has read, tensor by tensor: none holds
    the whole network. With ``replicas`` the group is a mesh of copies × shards; ranks of one copy
    are neighbours.
    """
    device = pick_device(config)
    if not dist.is_initialized():
        return network.to(device)
    for parameter in network.parameters():
        if not parameter.requires_grad:
            parameter.data = parameter.data.to(getattr(torch, config.param_dtype))
    size, copies = dist.get_world_size(), config.replicas
    if size == 1:
        network.to(device)
    else:
        read = dict(network.state_dict()), dict(network.named_buffers())
        network.to("meta")
        network.lm.tie_weights()  # undone by this move
    shape = (size,) if copies == 1 else (copies, size // copies)
    names = ("replicate", "shard")[-len(shape) :]
    kwargs: dict[str, Any] = {"mesh": init_device_mesh(device.type, shape, mesh_dim_names=names)}
    if config.param_dtype == "bfloat16":
        kwargs["mp_policy"] = MixedPrecisionPolicy(
            param_dtype=torch.bfloat16, reduce_dtype=torch.float32
        )
    for block in network.lm.model.layers:
        fully_shard(block, **kwargs)
    fully_shard(network, **kwargs)
    if size > 1:
        _receive(network.to_empty(device=device), *read)
    return network


def _receive(network: LmNetwork, state: dict[str, Any], buffers: Mapping[str, Tensor]) -> None:
    """Fill a sharded network with rank 0's weights and buffers; some of these are in no state."""
    for name, buffer in network.named_buffers():
        if is_main():
            buffer.copy_(buffers[name])
        dist.broadcast(buffer, 0)
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(network, state if is_main() else {}, options=options)


def precision(config: FsdpConfig) -> contextlib.AbstractContextManager[Any]:
    """Autocast for a single process on the CPU; groups use FSDP's mixed-precision policy."""
    if dist.is_initialized() or config.param_dtype == "float32":
        return contextlib.nullcontext()
    return torch.autocast(pick_device(config).type, torch.bfloat16)


def full_state(
    network: LmNetwork, trained_only: bool = False, dtype: torch.dtype | None = None
) -> dict[str, Tensor]:
    """All weights on the CPU under Hugging Face names, without tied duplicates and, if
    ``trained_only``, without what is frozen. Every rank must call this; rank 0 alone gets them.

    Shards are rounded to ``dtype`` where they lie, so that less travels.
    """
    lm, found = network.lm, {}
    frozen = {name for name, p in lm.named_parameters() if not p.requires_grad}
    tied = {"lm_head.weight"} if getattr(lm.config, "tie_word_embeddings", False) else set()
    for name, tensor in lm.state_dict().items():
        if name in tied or (trained_only and name in frozen):
            continue
        tensor = tensor.detach()
        if isinstance(tensor, DTensor):
            tensor = DTensor.full_tensor(tensor.to(dtype or tensor.dtype))  # type: ignore[arg-type]
        if is_main():
            found[name] = tensor.cpu()
    return found


def save_model(
    network: LmNetwork,
    state: Mapping[str, Tensor],
    directory: Path,
    remote_code: Path | None = None,
) -> None:
    """Rank 0 writes configuration, ``state`` and the model's Python files from ``remote_code``."""
    if is_main():
        directory.mkdir(parents=True, exist_ok=True)
        network.lm.config.save_pretrained(directory)
        generation = getattr(network.lm, "generation_config", None)
        if generation is not None:
            # save_pretrained refuses what loading let pass, such as a temperature without sampling.
            generation.to_json_file(directory / "generation_config.json")
        for module in sorted(remote_code.glob("*.py")) if remote_code else ():
            shutil.copy(module, directory)
        tensors = {name: tensor.contiguous() for name, tensor in state.items()}
        save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})


def save_optimizer(
    network: LmNetwork, optimizer: torch.optim.Optimizer, directory: Path, sharded: bool
) -> None:
    """Write the optimiser's state for any number of ranks: each its shard, or rank 0 all of it."""
    if sharded and dist.is_initialized():
        state = get_optimizer_state_dict(network, optimizer)
        checkpoint.save({"optimizer": state}, checkpoint_id=directory / OPTIMIZER_SHARDS)
        return
    state = get_optimizer_state_dict(network, optimizer, options=WHOLE)
    if is_main():
        # Given a path, torch uses its own writer, which does not report a full disk.
        with open(directory / OPTIMIZER_FILE, "wb") as stream:
            torch.save(state, stream)


def load_optimizer(network: LmNetwork, optimizer: torch.optim.Optimizer, directory: Path) -> None:
    """Restore what :func:`save_optimizer` wrote, on any number of ranks; nothing if it did not."""
    if (directory / OPTIMIZER_SHARDS).is_dir():
        own = {"optimizer": get_optimizer_state_dict(network, optimizer)}
        checkpoint.load(own, checkpoint_id=directory / OPTIMIZER_SHARDS)
        set_optimizer_state_dict(network, optimizer, own["optimizer"])
    elif (file := directory / OPTIMIZER_FILE).exists():
        # Mapped, or each rank of a group would hold a copy of the whole.
        state = torch.load(file, "cpu", weights_only=True, mmap=dist.is_initialized())
        set_optimizer_state_dict(network, optimizer, state, options=WHOLE)


def forget_pass(network: LmNetwork) -> None:
    """Clear what FSDP2 keeps of a pass that was broken off; its gradients would join the next."""
    if dist.is_initialized():
        for module in network.modules():
            if isinstance(module, FSDPModule):  # torch's reset leaves the whole parameters' own
                for group in module._get_fsdp_state()._fsdp_param_groups:
                    for parameter in group.fsdp_params:
                        if hasattr(parameter, "_unsharded_param"):
                            parameter._unsharded_param.grad = None
        assert isinstance(network, FSDPModule)
        network.reset_iter_state()


def clip_gradients(network: LmNetwork, max_norm: float) -> float:
    """Clip to a global norm and return the norm before clipping."""
    norm = torch.nn.utils.clip_grad_norm_(network.parameters(), max_norm)
    full = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
    return float(full)


def sum_over_ranks(values: dict[str, float]) -> dict[str, float]:
    """Element-wise sum over the group; every rank passes the same keys."""
    if not dist.is_initialized():
        return values
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    tensor = torch.tensor([values[k] for k in sorted(values)], dtype=torch.float64, device=device)
    dist.all_reduce(tensor)
    return dict(zip(sorted(values), tensor.tolist(), strict=True))


def is_main() -> bool:
    """Whether this process writes files."""
    return not dist.is_initialized() or dist.get_rank() == 0

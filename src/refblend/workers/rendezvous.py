"""Where the ranks of a training group meet, and over which network interface they talk.

Left to itself torch listens on every interface. Here the store listens on loopback, or on the
address of the first rank's node. It has no password: who can reach the address can join.
"""

import os
import socket
from datetime import timedelta
from urllib.parse import urlsplit

LOOPBACK = "127.0.0.1"

_LISTENING: dict[str, socket.socket] = {}
"""Sockets of this process whose store is not served yet, by address."""


def listen(host: str) -> str:
    """Open a socket that :func:`join` in this process will serve; its ``tcp://`` address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, 0), family=family)
    shown = f"[{host}]" if ":" in host else host
    address = f"tcp://{shown}:{listener.getsockname()[1]}"
    _LISTENING[address] = listener
    return address


def join(
    address: str, rank: int, size: int, backend: str, timeout_s: float, interface: str | None
) -> None:
    """Enter the process group of ``size`` ranks; a user's variables win over ``interface``."""
    import torch.distributed as dist

    where, timeout = urlsplit(address), timedelta(seconds=timeout_s)
    assert where.hostname is not None, address
    assert where.port is not None, address
    listener = _LISTENING.pop(address, None)
    store = dist.TCPStore(
        where.hostname,
        where.port,
        is_master=listener is not None,
        wait_for_workers=False,
        timeout=timeout,
        master_listen_fd=listener.detach() if listener else None,
    )
    if where.hostname == LOOPBACK:
        interface = next(name for _, name in socket.if_nameindex() if name.startswith("lo"))
    if interface:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
        os.environ.setdefault("NCCL_SOCKET_IFNAME", f"={interface}")  # without "=" it is a prefix
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timeout)

"""Where the ranks of a training group meet, and over which network interface they talk.

Ranks that share a node meet on its loopback, others at the address of the first rank's node. Left
to itself torch listens on every interface of that machine; here the store of a group listens on
that one address. It has no password: who can reach the address can join.
"""

import ipaddress
import os
import socket
from collections.abc import Mapping, Sequence
from datetime import timedelta
from urllib.parse import urlsplit

from refblend.errors import ResourceError

LOOPBACK = "127.0.0.1"

_LISTENING: dict[str, socket.socket] = {}
"""Sockets of this process whose store is not served yet, by address."""


def meeting_host(nodes: Sequence[str]) -> str:
    """The host of the rendezvous, from the address of each rank's node in rank order."""
    return LOOPBACK if len(set(nodes)) == 1 else nodes[0]


def choose_interface(
    own: str, interfaces: Mapping[str, Sequence[str]], wanted: str | None = None
) -> str:
    """The network interface over which a rank talks to the others; ResourceError without one.

    ``own`` is the address from which this process reaches the rendezvous, ``interfaces`` has the
    addresses of each interface; ranks that meet on loopback stay there, whatever is ``wanted``.
    """
    if wanted is not None and not ipaddress.ip_address(own).is_loopback:
        if wanted not in interfaces:
            raise ResourceError(
                f"ray.interface={wanted}: the machine at {own} has no such network interface",
                f"Name one that every node has; this one has {', '.join(interfaces)}.",
            )
        return wanted
    carrying = [name for name, addresses in interfaces.items() if own in addresses]
    if not carrying:
        raise ResourceError(
            f"no network interface of the machine carries its address {own}",
            f"Set ray.interface to one of {', '.join(interfaces)}.",
        )
    return carrying[0]


def listen(host: str) -> str:
    """Open the socket of a rendezvous in the first rank's process; its ``tcp://`` address.

    :func:`join` in the same process serves it. Until then whoever connects waits.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, 0), family=family)
    shown = f"[{host}]" if ":" in host else host
    address = f"tcp://{shown}:{listener.getsockname()[1]}"
    _LISTENING[address] = listener
    return address


def join(
    address: str, rank: int, size: int, backend: str, timeout_s: float, interface: str | None
) -> None:
    """Enter the process group of ``size`` ranks that meets at ``address``.

    Variables of gloo and nccl that the user has set win over :func:`choose_interface`.
    """
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
    own = _own_address(where.hostname, where.port)
    name = choose_interface(own, _interfaces(own), interface)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
    os.environ.setdefault("NCCL_SOCKET_IFNAME", f"={name}")  # without "=" it is a prefix
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timeout)


def _own_address(host: str, port: int) -> str:
    """The address from which this machine reaches another."""
    with socket.create_connection((host, port)) as connection:
        return str(connection.getsockname()[0])


def _interfaces(own: str) -> dict[str, list[str]]:
    """The addresses of each network interface here, or of loopback alone where that is used.

    The check of a bare machine with a GPU meets on loopback, and psutil is not there.
    """
    if ipaddress.ip_address(own).is_loopback:
        return {next(name for _, name in socket.if_nameindex() if name.startswith("lo")): [own]}
    import psutil

    return {
        name: [entry.address.split("%")[0] for entry in entries]
        for name, entries in psutil.net_if_addrs().items()
    }

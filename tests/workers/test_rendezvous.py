"""Ranks meet on loopback and talk over it, and the port is open nowhere else."""

import os
import socket
import subprocess
import sys

import psutil
import pytest

from refblend.workers.rendezvous import LOOPBACK, listen

RANK = """
import os, sys
from refblend.workers.rendezvous import join, listen
rank, address = int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else listen("127.0.0.1")
print(address, flush=True)
import torch
import torch.distributed as dist
join(address, rank, 2, "gloo", 90, None)
total = torch.tensor([rank + 1.0])
dist.all_reduce(total)
print(float(total), os.environ["GLOO_SOCKET_IFNAME"], flush=True)
dist.destroy_process_group()
"""


def start_rank(*arguments: str) -> "subprocess.Popen[str]":
    environment = {k: v for k, v in os.environ.items() if k != "GLOO_SOCKET_IFNAME"}
    command = [sys.executable, "-c", RANK, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


@pytest.mark.engine
def test_two_processes_meet_where_the_first_listens() -> None:
    with start_rank("0") as first:
        assert first.stdout is not None
        address = first.stdout.readline().strip()
        with start_rank("1", address) as second:
            assert second.communicate(timeout=120)[0].split()[1:] == ["3.0", "lo"]
        assert first.communicate(timeout=30)[0].split() == ["3.0", "lo"]
    assert (first.returncode, second.returncode) == (0, 0)


def test_a_listener_is_one_of_one_address() -> None:
    address = listen(LOOPBACK)
    host, port = address.removeprefix("tcp://").split(":")
    assert host == LOOPBACK
    with socket.create_connection((host, int(port)), timeout=5):
        pass
    others = [
        entry.address
        for entries in psutil.net_if_addrs().values()
        for entry in entries
        if entry.family == socket.AF_INET and entry.address != LOOPBACK
    ]
    for other in others:
        with pytest.raises(OSError, match="refused"):
            socket.create_connection((other, int(port)), timeout=5)

"""Where ranks meet, over which interface they talk, and that the port is open nowhere else."""

import os
import socket
import subprocess
import sys

import psutil
import pytest

from refblend.errors import ResourceError
from refblend.workers.rendezvous import LOOPBACK, choose_interface, listen, meeting_host

MACHINE = {"lo": ["127.0.0.1", "::1"], "eth0": ["10.0.0.7", "fe80::1"], "ib0": ["10.1.0.7"]}


@pytest.mark.parametrize(
    ("nodes", "host"),
    [
        (["10.0.0.7"], LOOPBACK),
        (["10.0.0.7", "10.0.0.7"], LOOPBACK),
        (["10.0.0.7", "10.0.0.8"], "10.0.0.7"),
        (["10.0.0.8", "10.0.0.8", "10.0.0.7"], "10.0.0.8"),
    ],
)
def test_ranks_meet_at_the_first_one_s_node_unless_they_share_it(nodes, host) -> None:
    assert meeting_host(nodes) == host


@pytest.mark.parametrize(
    ("own", "wanted", "name"),
    [
        ("127.0.0.1", None, "lo"),
        ("10.0.0.7", None, "eth0"),
        ("10.1.0.7", None, "ib0"),
        ("10.0.0.7", "ib0", "ib0"),
        ("127.0.0.1", "ib0", "lo"),
    ],
)
def test_the_interface_is_the_user_s_or_carries_the_address(own, wanted, name) -> None:
    assert choose_interface(own, MACHINE, wanted) == name


def test_an_interface_that_is_not_there_is_refused() -> None:
    with pytest.raises(ResourceError, match=r"ray\.interface=ib7: .* 10\.0\.0\.7 has no") as caught:
        choose_interface("10.0.0.7", MACHINE, "ib7")
    assert "this one has lo, eth0, ib0" in caught.value.remedy
    with pytest.raises(ResourceError, match=r"carries its address 10\.9\.0\.1") as caught:
        choose_interface("10.9.0.1", MACHINE)
    assert "Set ray.interface to one of lo, eth0, ib0" in caught.value.remedy


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

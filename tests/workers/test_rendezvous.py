"""The port where ranks meet is open on loopback alone; test_fsdp2.py lets them meet."""

import socket

import psutil
import pytest

from refblend.workers.rendezvous import LOOPBACK, listen


def test_a_listener_is_one_of_one_address():
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

"""The port where ranks meet is open on loopback alone; test_fsdp2.py lets them meet."""

import os
import socket

import psutil
import pytest

from refblend.workers.groups import WorkerProcess


def test_a_listener_is_one_of_one_address():
    host, port, listener = WorkerProcess().listen(one_node=True)
    assert host == "127.0.0.1"
    with socket.create_connection((host, port), timeout=5):
        pass
    others = [
        entry.address
        for entries in psutil.net_if_addrs().values()
        for entry in entries
        if entry.family == socket.AF_INET and entry.address != host
    ]
    for other in others:
        with pytest.raises(OSError, match="refused"):
            socket.create_connection((other, port), timeout=5)
    os.close(listener)

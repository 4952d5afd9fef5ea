"""A slow, lossy cable between two network namespaces: `tc netem` without a kernel module.

    python scripts/slow_cable.py PREFIX --delay 0.04 --loss 0.01

Makes the device `tap-a` in the namespace PREFIX-a and `tap-b` in PREFIX-b, and carries every frame
from one to the other: late by `--delay` seconds, and never with the probability `--loss`. Ends with
SIGTERM, and the devices with it. Needs root.
"""

import argparse
import ctypes
import fcntl
import heapq
import os
import random
import select
import struct
import time

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000  # linux/if_tun.h
CLONE_NEWNET = 0x40000000  # linux/sched.h
FRAME = 65_536


def open_tap(namespace: str, name: str) -> int:
    """A new TAP device in a namespace; its descriptor works from any other."""
    libc = ctypes.CDLL(None, use_errno=True)  # os.setns came with Python 3.12
    with open(f"/run/netns/{namespace}") as there:
        if libc.setns(there.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter the namespace {namespace}")
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TAP | IFF_NO_PI))
    return descriptor


def carry(ends: tuple[int, int], delay: float, loss: float) -> None:
    """Take frames from either end to the other, for ever."""
    other, chance = {ends[0]: ends[1], ends[1]: ends[0]}, random.Random(0)
    under_way: list[tuple[float, int, int, bytes]] = []  # (due, number, where to, frame)
    number = 0
    while True:
        wait = max(0.0, under_way[0][0] - time.monotonic()) if under_way else None
        for end in select.select(ends, [], [], wait)[0]:
            frame = os.read(end, FRAME)
            if chance.random() >= loss:
                number += 1
                heapq.heappush(under_way, (time.monotonic() + delay, number, other[end], frame))
        while under_way and under_way[0][0] <= time.monotonic():
            _, _, end, frame = heapq.heappop(under_way)
            try:
                os.write(end, frame)
            except OSError:  # the device is down: the frame is lost
                continue


def main() -> None:
    """Open both ends, then carry."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("prefix", help="of the namespaces' names, e.g. refblend")
    parser.add_argument("--delay", type=float, default=0.04, help="seconds, each way")
    parser.add_argument("--loss", type=float, default=0.01, help="probability")
    options = parser.parse_args()
    ends = tuple(open_tap(f"{options.prefix}-{node}", f"tap-{node}") for node in "ab")
    print("ready", flush=True)
    carry(ends, options.delay, options.loss)


if __name__ == "__main__":
    main()

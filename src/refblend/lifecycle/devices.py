"""Leases of GPUs: several jobs on one machine never share a device.

A lease is an exclusive lock on a file per device, so the kernel ends it with its process. Only
devices in ``CUDA_VISIBLE_DEVICES`` are leased. ``python -m refblend.lifecycle.devices`` prints how
many this process may use; with ``COUNT COMMAND…`` it waits for that many and becomes the command.
"""

import contextlib
import fcntl
import os
import sys
import time
from pathlib import Path

import pynvml  # nvidia-ml-py; the library that it opens comes with the driver

from refblend.errors import ConfigError, ResourceError

VISIBLE = "CUDA_VISIBLE_DEVICES"
ORDER = "CUDA_DEVICE_ORDER"
FOLDER = "REFBLEND_LEASES"
"""Environment variable: another folder for the lock files."""
PRETENDED = "REFBLEND_PRETENDED_GPUS"
POLL_S = 1.0
FREE_S = 60
"""How long to wait for a leased device's memory, in seconds."""


def visible_devices() -> list[str]:
    """Names of the devices that this process may use, as ``CUDA_VISIBLE_DEVICES`` has them."""
    named = os.environ.get(VISIBLE)
    if named is None:
        return [str(index) for index in range(len(device_memory()))]
    names = [name.strip() for name in named.split(",")]
    return [name for name in names if name not in ("", "-1", "NoDevFiles")]


def device_sizes() -> list[float]:
    """Bytes of the devices that this process may use, the smallest first.

    One that NVML does not know, such as a part of a GPU (MIG), counts as the machine's smallest.

    ``REFBLEND_PRETENDED_GPUS`` has the sizes in GiB, e.g. ``80,80``, of GPUs to plan for.
    """
    if pretended := os.environ.get(PRETENDED):
        try:
            return sorted(float(size) * 2**30 for size in pretended.split(","))
        except ValueError:
            told = f"{PRETENDED}={pretended} is not a list of sizes in GiB"
            raise ConfigError(told, "Write numbers, as in 80,80.") from None
    sizes = device_memory()
    return sorted(sizes.get(_uuid(n), min(sizes.values())) for n in visible_devices() if sizes)


def lease(count: int) -> list[str]:
    """Wait until ``count`` devices are free, then hold them until this process ends."""
    devices = visible_devices()
    if count > len(devices):
        raise ResourceError(
            f"the job needs {count} GPUs and can see {len(devices)}"
            + (f" ({VISIBLE}={os.environ[VISIBLE]})" if VISIBLE in os.environ else ""),
            f"Set {VISIBLE}, or lower the number of GPUs that the configuration asks for.",
        )
    if (taken := _try(devices, count)) is None:
        print(f"waiting for {count} of the GPUs {','.join(devices)}", file=sys.stderr, flush=True)
    while taken is None:
        time.sleep(POLL_S)
        taken = _try(devices, count)
    # A job's lease ends before the processes that its Ray started are gone; other programs stay.
    held = list(map(_uuid, taken))
    for second in range(FREE_S):
        used = device_memory("used")
        if all(used.get(name, 0.0) < 2**30 for name in held):
            break
        if not second:
            print(f"waiting for memory of GPU {','.join(taken)}", file=sys.stderr, flush=True)
        time.sleep(POLL_S)
    return taken


def _try(devices: list[str], count: int) -> list[str] | None:
    """The first devices that are free, locked; None (and no lock) if they are too few."""
    held: dict[str, int] = {}
    for device in devices:
        handle = _opened(device)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            continue
        held[device] = handle
        if len(held) == count:
            for handle in held.values():
                os.set_inheritable(handle, True)  # by what this process becomes
            return list(held)
    for handle in held.values():
        os.close(handle)
    return None


def _opened(device: str) -> int:
    """The lock file of a device, opened and created if missing."""
    folder = Path(os.environ.get(FOLDER, "/tmp/refblend-gpus"))
    file = folder / f"{_uuid(device)}.lock"
    try:
        with contextlib.suppress(FileExistsError):  # another job may make it at this moment
            folder.mkdir(parents=True)
            folder.chmod(0o1777)
        if not file.exists():  # Linux refuses O_CREAT for a file of another user in such a folder
            file.touch()
            file.chmod(0o644)  # whatever the umask: other users lock it, too
        return os.open(file, os.O_RDONLY)
    except OSError as error:
        raise ResourceError(
            f"{file} cannot be opened ({error.strerror})", f"Name another folder by {FOLDER}."
        ) from None


def _uuid(device: str) -> str:
    """NVML's name of a device that is named by its number or the beginning of that name."""
    names = list(device_memory())
    if device.isdecimal() and int(device) < len(names):
        return names[int(device)]
    return next((name for name in names if name.startswith(device)), device)


def device_memory(kind: str = "total") -> dict[str, float]:
    """Bytes of each device, ``total`` or ``used``, by NVML's name; empty without a driver."""
    try:
        pynvml.nvmlInit()
        try:
            numbers = range(pynvml.nvmlDeviceGetCount())
            return {
                str(pynvml.nvmlDeviceGetUUID(handle)): float(
                    getattr(pynvml.nvmlDeviceGetMemoryInfo(handle), kind)
                )
                for handle in map(pynvml.nvmlDeviceGetHandleByIndex, numbers)
            }
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        return {}


def main(arguments: list[str]) -> None:
    """See the module's description."""
    if not arguments:
        print(len(visible_devices()))
        return
    count, command = arguments[0], arguments[1:]
    if not count.isdecimal() or not command:
        raise ConfigError(f"{count} is no number of GPUs with a command", "Write COUNT COMMAND….")
    if int(count):
        os.environ[VISIBLE] = ",".join(lease(int(count)))
        # NVML counts devices in this order; CUDA's own default is by speed.
        os.environ[ORDER] = "PCI_BUS_ID"
    os.execvp(command[0], command)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (ConfigError, ResourceError) as error:
        sys.exit(f"error: {error}")

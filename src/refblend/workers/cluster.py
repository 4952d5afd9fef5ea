"""The Ray cluster of a run: a private local one, always shut down, or an existing one.

A private cluster has its own token, its own session folder and no dashboard, so that runs on one
machine do not interfere. Its folder is named after the command's process; folders whose command has
ended are removed at the next start, which covers commands that were killed.
"""

import contextlib
import os
import secrets
import shutil
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import ray
from ray._private import ray_constants

from refblend.config.trainer import RayConfig
from refblend.errors import ResourceError
from refblend.files import user_cache
from refblend.lifecycle.guardian import CLUSTER_PREFIX, command_pid
from refblend.lifecycle.stalls import removed_on_stall, stall_limit
from refblend.workers.access import check_nodes, is_loopback, require_token
from refblend.workers.nodes import alive_nodes

RAY_FOLDER = "r"
"""Name of Ray's own folder below the cluster's; short, because the paths of sockets are bounded."""

_TOKEN = secrets.token_hex(32)
"""One token for all clusters of this process: Ray reads it once and keeps it."""


def _remove_orphans() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{CLUSTER_PREFIX}*"):
        pid = folder.name.removeprefix(CLUSTER_PREFIX).split("-")[0]
        if pid.isdigit() and not psutil.pid_exists(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)


def _require_listener(address: str) -> None:
    """Fail at once if nothing listens; Ray itself tries for minutes.

    Raises:
        OSError: the host is unknown, refuses, or does not answer within seconds.
    """
    host, separator, port = address.removeprefix("ray://").rpartition(":")
    if separator and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()


def _stay_on_loopback() -> None:
    """Bind the ports of clusters that start from now on to loopback.

    Ray replaces a loopback address by one that others can reach, and then listens on all
    interfaces, except on systems where it expects no other machines: the switch is named after
    those systems. The processes that Ray starts read the variable; this one has read it already.
    """
    os.environ[ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR] = "0"
    ray_constants.ENABLE_RAY_CLUSTER = False


def _start_private(config: RayConfig, num_cpus: float, num_gpus: float, folder: Path) -> None:
    """Start a cluster whose session lies in ``folder``.

    Raises:
        ResourceError: Ray did not start, for example on an overloaded machine.
    """
    _stay_on_loopback()
    try:
        ray.init(
            address="local",
            num_cpus=config.num_cpus or max(1, int(-(-num_cpus // 1))),
            num_gpus=int(-(-num_gpus // 1)),
            include_dashboard=False,
            object_store_memory=config.object_store_memory_mb * 2**20,
            log_to_driver=False,
            logging_level="ERROR",
            _temp_dir=str(folder),
            _node_ip_address="127.0.0.1",
        )
    except Exception as error:  # Ray raises the bare class when its processes are too slow
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ResourceError(
            f"the private Ray cluster did not start: {reason}",
            "Start fewer runs at once, or call the same command again.",
        ) from error


@contextlib.contextmanager
def _keeping_sigterm() -> Iterator[None]:
    """Keep our SIGTERM handler while Ray installs its own within the block.

    Ray's handler raises ``SystemExit`` with another status and would stay installed afterwards.
    """
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    except SystemExit:
        if callable(handler):
            handler(signal.SIGTERM, None)
        raise
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)


def _disconnect() -> None:
    with stall_limit("leaving the Ray cluster"):
        ray.shutdown()


@contextlib.contextmanager
def ray_cluster(config: RayConfig, num_cpus: float, num_gpus: float) -> Iterator[None]:
    """Connect to a cluster with these CPU slots and GPUs for the duration of the block.

    Raises:
        ResourceError: no cluster answers at ``ray.address``, it is open to others, or the private
            one did not start.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Ray lowers the priority of its workers by default: with any other load they would starve.
    os.environ.setdefault("RAY_worker_niceness", "0")
    if config.address is not None:
        if not is_loopback(config.address):
            require_token()
        try:
            _require_listener(config.address)
            with _keeping_sigterm():
                ray.init(address=config.address, log_to_driver=False, logging_level="ERROR")
        except OSError as error:
            raise ResourceError(
                f"ray.address={config.address}: no cluster answers ({error})",
                "Start it, or set ray.address=null for a private one.",
            ) from None
        try:
            check_nodes(alive_nodes(), config.tls)
            yield
        finally:
            _disconnect()
        return

    _remove_orphans()
    folder = Path(tempfile.mkdtemp(prefix=f"{CLUSTER_PREFIX}{command_pid()}-"))
    try:
        with removed_on_stall(folder), _private_environment(folder):
            try:
                with _keeping_sigterm():
                    _start_private(config, num_cpus, num_gpus, folder / RAY_FOLDER)
                yield
            finally:
                _disconnect()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _private_environment(folder: Path) -> Iterator[None]:
    """The token of a cluster in ``folder``, and the environment that its processes inherit.

    Whatever they write for the time of the run lies below ``folder``, which nobody else may enter:
    Ray opens its own folder to everybody, so it is one below.
    """
    token, temporary = folder / "token", folder / "tmp"
    token.touch(mode=0o600)
    token.write_text(_TOKEN)
    temporary.mkdir()
    # Ray itself turns token authentication on for a new cluster when the mode is unset; setting
    # the mode here would come too late for its C++ part, which read it when ray was imported.
    wanted = {"RAY_AUTH_TOKEN_PATH": str(token), "TMPDIR": str(temporary)}
    # torch would keep compiled code under a name in /tmp that anybody can take first.
    compiled = {"TORCHINDUCTOR_CACHE_DIR": str(user_cache() / "torchinductor")}
    # Precompiled headers ignore that folder: every run would make them again, some 10 s each.
    compiled["TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS"] = "0"
    wanted |= {name: value for name, value in compiled.items() if name not in os.environ}
    names = ("RAY_AUTH_MODE", *wanted)
    previous = {name: os.environ.get(name) for name in names}
    previous_tempdir = tempfile.tempdir
    os.environ.update(wanted)
    tempfile.tempdir = str(temporary)
    try:
        yield
    finally:
        tempfile.tempdir = previous_tempdir
        for name, value in previous.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value

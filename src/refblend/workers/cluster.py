"""The Ray cluster of a run: a private local one, always shut down, or an existing one.

A private cluster listens on loopback and has its own token and folder. On several nodes Ray listens
on every interface, and without a token anyone who reaches a port can run code. So the run refuses
to start if the token is missing, readable by others, or not required by every node.
"""

import contextlib
import ipaddress
import os
import secrets
import signal
import socket
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import ray
from ray._private import ray_constants, services
from ray._private.authentication.authentication_utils import is_token_auth_enabled
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from refblend.config.trainer import RayConfig
from refblend.errors import ResourceError, first_line
from refblend.lifecycle.folders import command_folder
from refblend.lifecycle.stalls import stall_limit

HOW = "start Ray on every node with RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH={file}"
TLS = "RAY_USE_TLS"
ANSWER_S = 30.0
"""A node that takes longer to answer is not asked again."""


def is_loopback(address: str) -> bool:
    """Whether an address ``host:port`` can be reached from this machine only."""
    host = address.removeprefix("ray://").rpartition(":")[0].strip("[]") or address
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host in ("localhost", "auto", "local")


def token_file() -> Path:
    """The file from which Ray reads the token."""
    return Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")


def require_token() -> None:
    """Refuse to connect without a private token, and write one for next time."""
    file = token_file()
    if os.environ.get("RAY_AUTH_MODE", "token").lower() != "token":
        raise ResourceError(
            "RAY_AUTH_MODE turns Ray's token off, and anybody who reaches a node could run code",
            f"Set RAY_AUTH_MODE=token, and {HOW.format(file=file)}.",
        )
    if os.environ.get("RAY_AUTH_TOKEN"):
        return
    if not file.is_file():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o600, exist_ok=False)
        file.write_text(secrets.token_hex(32))
        raise ResourceError(
            f"a cluster of several machines needs Ray's token, and there was none; {file} holds a "
            "new one",
            f"Copy it to every node with mode 600, {HOW.format(file=file)}, and call again.",
        )
    if stat.S_IMODE(file.stat().st_mode) & 0o077:
        raise ResourceError(f"others may read the token {file}", f"chmod 600 {file}")


def manners() -> tuple[bool, bool]:
    """Whether Ray on this node requires the token, and whether it uses TLS."""
    return is_token_auth_enabled(), os.environ.get(TLS, "0").lower() in ("1", "true")


def ask_nodes() -> dict[str, tuple[bool, bool]]:
    """The :func:`manners` of each node, by its address; of those that answer in time."""
    task, asked = ray.remote(manners), {}
    for node in ray.nodes():
        if node["Alive"]:
            place = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            options = task.options(num_cpus=0, max_retries=0, scheduling_strategy=place)
            asked[options.remote()] = node["NodeManagerAddress"]
    answered, _ = ray.wait(list(asked), num_returns=len(asked), timeout=ANSWER_S)
    answers = {}
    for reference in answered:
        with contextlib.suppress(RayError):  # a node on its way out; nothing will start there
            answers[asked[reference]] = ray.get(reference)
    return answers


def check_nodes(tls: bool) -> None:
    """Refuse (ResourceError) nodes that ask for no token, or lack the TLS that was asked for."""
    answers = ask_nodes()
    if len(answers) < 2 and not tls:
        return
    for address, (token, encrypts) in answers.items():
        if not token:
            raise ResourceError(
                f"node {address} asks for no token: anybody who reaches it can run code there",
                f"End the cluster and {HOW.format(file=token_file())}.",
            )
        if tls and not encrypts:
            raise ResourceError(
                f"ray.tls is true, but Ray on node {address} does not use TLS",
                f"Start it with {TLS}=1 and its certificates (RAY_TLS_SERVER_CERT, "
                "RAY_TLS_SERVER_KEY, RAY_TLS_CA_CERT), or set ray.tls=false.",
            )


_TOKEN = secrets.token_hex(32)
"""One token for all clusters of this process: Ray reads it once and keeps it."""


def _stay_on_loopback() -> None:
    """Bind the ports of clusters that start from now on to loopback.

    Ray's processes read the variable, whose name is misleading; this one has read it already.
    """
    os.environ[ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR] = "0"
    ray_constants.ENABLE_RAY_CLUSTER = False


def _start_private(config: RayConfig, num_cpus: float, num_gpus: float, folder: Path) -> None:
    """Start a cluster in ``folder``, retrying when Ray's own 30 s run out; or ResourceError."""
    _stay_on_loopback()
    deadline = time.monotonic() + config.start_timeout_s
    while not ray.is_initialized():
        others = psutil.Process().children(recursive=True)
        try:
            ray.init(
                address="local",
                num_cpus=config.num_cpus or max(1, int(-(-num_cpus // 1))),
                num_gpus=num_gpus,
                include_dashboard=False,
                object_store_memory=config.object_store_memory_mb * 2**20,
                log_to_driver=False,
                logging_level="ERROR",
                _temp_dir=str(folder),
                _node_ip_address="127.0.0.1",
            )
        except Exception as error:  # the bare class
            for process in set(psutil.Process().children(recursive=True)) - set(others):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            if "timed out" not in str(error) or time.monotonic() > deadline:
                raise ResourceError(
                    f"the private Ray cluster did not start: {first_line(error)}",
                    "Raise ray.start_timeout_s, or start fewer runs at once.",
                ) from error


@contextlib.contextmanager
def _keeping_sigterm() -> Iterator[None]:
    """Keep our SIGTERM handler: Ray's would stay, and raise ``SystemExit`` with another status."""
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


def _join(address: str) -> None:
    """Connect to a cluster that runs; ResourceError if none answers, or its versions are others."""
    if not is_loopback(address):
        require_token()
    host, _, port = address.removeprefix("ray://").rpartition(":")
    host = host.strip("[]")
    try:
        if port.isdigit():  # Ray itself would try for minutes
            if not address.startswith("ray://"):  # Ray calls the node's address, not loopback
                host = services.resolve_ip_for_localhost(host)
            socket.create_connection((host, int(port)), timeout=10).close()
        with _keeping_sigterm():
            ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except OSError as error:
        raise ResourceError(
            f"ray.address={address}: no cluster answers at {host or address} ({error})",
            "Start it, or set ray.address=null for a private one.",
        ) from None
    except RuntimeError as error:
        said = " ".join(str(error).split())
        if not said.startswith("Version mismatch"):
            raise
        raise ResourceError(
            f"ray.address={address}: {said}", "Start the cluster from the environment of this run."
        ) from None


@contextlib.contextmanager
def ray_cluster(config: RayConfig, num_cpus: float, num_gpus: float) -> Iterator[None]:
    """Connect to a cluster with these CPU slots and GPUs for the duration of the block."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Ray lowers the priority of its workers by default: with any other load they would starve.
    os.environ.setdefault("RAY_worker_niceness", "0")
    with contextlib.ExitStack() as stack:
        try:
            if config.address is None:
                folder = stack.enter_context(command_folder())
                stack.enter_context(_private_environment(folder))
                with _keeping_sigterm():  # a short name: the paths of sockets are bounded
                    _start_private(config, num_cpus, num_gpus, folder / "r")
            else:
                _join(config.address)
                check_nodes(config.tls)
            yield
        finally:
            with stall_limit("leaving the Ray cluster"):
                ray.shutdown()


@contextlib.contextmanager
def _private_environment(folder: Path) -> Iterator[None]:
    """The token of a cluster and the environment of its processes, kept in ``folder``."""
    token, temporary = folder / "token", folder / "tmp"
    token.touch(mode=0o600)
    token.write_text(_TOKEN)
    temporary.mkdir()
    # Ray itself turns token authentication on for a new cluster when the mode is unset; setting
    # the mode here would come too late for its C++ part, which read it when ray was imported.
    wanted = {"RAY_AUTH_TOKEN_PATH": str(token), "TMPDIR": str(temporary)}
    # torch would keep compiled code under a name in /tmp that anybody can take first.
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "refblend")
    compiled = {"TORCHINDUCTOR_CACHE_DIR": str(cache / "torchinductor")}
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

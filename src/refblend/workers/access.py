"""Who may use a cluster of several nodes: only with Ray's token, and by option TLS.

A cluster of one machine listens on loopback; of several, Ray listens on every interface of its
nodes, and whoever reaches a port without a token can run code there. So the run refuses to start
where the token is missing, readable by others, or not asked for by every node.
"""

import ipaddress
import os
import secrets
import stat
from collections.abc import Sequence
from pathlib import Path

from ray._private.authentication.authentication_utils import is_token_auth_enabled

from refblend.errors import ResourceError
from refblend.workers.nodes import ANSWER_S, ask
from refblend.workers.placement import Node

HOW = "start Ray on every node with RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH={file}"
TLS = "RAY_USE_TLS"


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
    """Before Ray is asked: refuse to go on without a private token; write one for next time."""
    file = token_file()
    if os.environ.get("RAY_AUTH_MODE", "token").lower() != "token":
        raise ResourceError(
            "RAY_AUTH_MODE turns Ray's token off, and anybody who reaches a node could run code",
            f"Set RAY_AUTH_MODE=token, and {HOW.format(file=file)}.",
        )
    if os.environ.get("RAY_AUTH_TOKEN"):
        return
    if not file.is_file():
        write_token(file)
        raise ResourceError(
            f"a cluster of several machines needs Ray's token, and there was none; {file} holds a "
            "new one",
            f"Copy it to every node with mode 600, {HOW.format(file=file)}, and call again.",
        )
    if stat.S_IMODE(file.stat().st_mode) & 0o077:
        raise ResourceError(f"others may read the token {file}", f"chmod 600 {file}")


def write_token(file: Path) -> None:
    """A new token in a file that nobody else may read; a file that is there stays."""
    file.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as stream:
        stream.write(secrets.token_hex(32))


def manners() -> tuple[bool, bool]:
    """Whether Ray asks for the token here, and whether it uses TLS."""
    tls = os.environ.get(TLS, "0").lower() in ("1", "true")
    return is_token_auth_enabled(), tls


def check_nodes(nodes: Sequence[Node], tls: bool) -> None:
    """Refuse (ResourceError) nodes that ask for no token, or lack the TLS that was asked for."""
    if len(nodes) < 2 and not tls:
        return
    answers = ask(nodes, manners, timeout_s=ANSWER_S)
    for node in nodes:
        if node.id not in answers:
            continue  # it may be on its way out; placing will not use it
        token, encrypts = answers[node.id]
        if not token:
            raise ResourceError(
                f"node {node.address} asks for no token: anybody who reaches it can run code there",
                f"End the cluster and {HOW.format(file=token_file())}.",
            )
        if tls and not encrypts:
            raise ResourceError(
                f"ray.tls is true, but Ray on node {node.address} does not use TLS",
                f"Start it with {TLS}=1 and its certificates (RAY_TLS_SERVER_CERT, "
                "RAY_TLS_SERVER_KEY, RAY_TLS_CA_CERT), or set ray.tls=false.",
            )

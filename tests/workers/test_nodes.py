"""Which nodes of a cluster can be reached, with Ray's list given by hand."""

import socket
from types import SimpleNamespace
from typing import Any

import pytest

from refblend.workers import nodes


def entry(name: str, port: int, **other: Any) -> dict[str, Any]:
    base = {"NodeID": name, "Alive": True, "NodeManagerAddress": "127.0.0.1", "Labels": {}}
    return base | {"NodeManagerPort": port, "Resources": {"CPU": 2.0}} | other


def test_a_node_that_accepts_no_connection_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray believes it alive for half a minute more; the driver's own is not asked."""
    with socket.create_server(("127.0.0.1", 0)) as open_, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # nobody else gets the port, and nobody listens
        there, refused = open_.getsockname()[1], closed.getsockname()[1]
        found = [
            entry("there", there),
            entry("refused", refused),
            entry("told", there, Alive=False),
            entry("own", refused),
        ]
        monkeypatch.setattr(nodes.ray, "nodes", lambda: found)
        context = SimpleNamespace(get_node_id=lambda: "own")
        monkeypatch.setattr(nodes.ray, "get_runtime_context", lambda: context)
        assert [node.id for node in nodes.alive_nodes()] == ["own", "there"]

"""A cluster of several machines is used with a token or not at all."""

import socket
import stat
from pathlib import Path

import pytest
from ray._private.utils import check_version_info

from refblend.errors import ResourceError
from refblend.workers import cluster


@pytest.fixture
def token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "folder" / "token"
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(file))
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    return file


HERE = ["127.0.0.1:6379", "ray://127.0.0.1:10001", "[::1]:6379", "localhost:6379", "auto"]
ELSEWHERE = ["10.0.0.1:6379", "ray://head:10001", "[fe80::1]:6379"]


@pytest.mark.parametrize("address", [*HERE, *ELSEWHERE])
def test_which_addresses_stay_on_this_machine(address):
    assert cluster.is_loopback(address) is (address in HERE)


def test_a_missing_token_is_made_for_its_owner_alone(token):
    with pytest.raises(ResourceError, match="there was none") as caught:
        cluster.require_token()
    assert str(token) in caught.value.remedy
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    assert len(bytes.fromhex(token.read_text())) == 32
    cluster.require_token()


def test_a_token_that_others_may_read_is_refused(token):
    token.parent.mkdir()
    token.touch(0o640)
    with pytest.raises(ResourceError, match="others may read") as caught:
        cluster.require_token()
    assert caught.value.remedy == f"chmod 600 {token}"


def test_a_cluster_is_not_used_without_a_token(token, monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with pytest.raises(ResourceError, match="turns Ray's token off"):
        cluster.require_token()
    assert not token.exists()


def test_a_token_in_the_environment_is_enough(token, monkeypatch):
    monkeypatch.setenv("RAY_AUTH_TOKEN", "ab" * 32)
    cluster.require_token()
    assert not token.exists()


def test_a_cluster_that_listens_on_loopback_alone_is_not_waited_for(monkeypatch):
    """In place of loopback Ray calls the node's address, and would try it for many minutes."""
    monkeypatch.setattr(cluster.services, "resolve_ip_for_localhost", lambda host: "127.0.0.2")
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(ResourceError, match=r"no cluster answers at 127\.0\.0\.2"):
            cluster._join(address)


def test_a_cluster_of_other_versions_is_named(monkeypatch):
    """As Ray itself compares them."""
    theirs = {"ray_version": "2.9.0", "python_version": "3.9.1"}
    monkeypatch.setattr(
        cluster.ray, "init", lambda **_: check_version_info(theirs, "10.0.0.1:6379")
    )
    with pytest.raises(ResourceError, match=r"auto: Version mismatch.* Ray: 2\.9\.0"):
        cluster._join("auto")


def answering(monkeypatch: pytest.MonkeyPatch, *answers: tuple[bool, bool]) -> None:
    by_node = dict(zip(("10.0.0.1", "10.0.0.2"), answers, strict=False))
    monkeypatch.setattr(cluster, "ask_nodes", lambda: by_node)


def test_every_node_must_ask_for_the_token(monkeypatch):
    answering(monkeypatch, (True, False), (True, False))
    cluster.check_nodes(tls=False)
    answering(monkeypatch, (True, False), (False, False))
    with pytest.raises(ResourceError, match=r"node 10\.0\.0\.2 asks for no token"):
        cluster.check_nodes(tls=False)


def test_tls_is_used_by_every_node_if_it_was_asked_for(monkeypatch):
    answering(monkeypatch, (True, True), (True, False))
    cluster.check_nodes(tls=False)
    with pytest.raises(ResourceError, match=r"node 10\.0\.0\.2 does not use TLS") as caught:
        cluster.check_nodes(tls=True)
    assert "RAY_TLS_SERVER_CERT" in caught.value.remedy


def test_one_machine_alone_needs_neither(monkeypatch):
    answering(monkeypatch, (False, False))
    cluster.check_nodes(tls=False)

"""Files on their way to nodes and back, without Ray: a porter is called directly."""

import contextlib
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from ray.exceptions import ActorDiedError, RayTaskError

from refblend.errors import DiskError
from refblend.workers import node_files
from refblend.workers.node_files import Porter, content, fetch, outgoing, send
from refblend.workers.placement import Node
from refblend.workers.restarts import WorkerDiedError

THERE = Node("id-b", "10.0.0.2", 4.0)
WAIT = node_files._wait
PORTER = node_files._porter


class Call:
    def __init__(self, porter: Porter, name: str) -> None:
        self.remote = getattr(porter, name)


class Handle:
    """A porter as Ray hands it out, which answers at once."""

    def __init__(self) -> None:
        self.porter = Porter()

    def __getattr__(self, name: str) -> Call:
        return Call(self.porter, name)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    @contextlib.contextmanager
    def porter(_: Node) -> Iterator[Handle]:
        yield Handle()

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(node_files, "_porter", porter)
    monkeypatch.setattr(node_files, "_wait", lambda _, answer: answer)
    monkeypatch.setattr(node_files, "CHUNK", 10)
    return tmp_path / "cache" / "refblend" / "nodes"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    (folder / "more").mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "empty").write_bytes(b"")
    (folder / "more" / "weights").write_bytes(bytes(range(256)) * 3)
    return folder


def tree(folder: Path) -> dict[str, bytes]:
    files = (p for p in folder.rglob("*") if p.is_file())
    return {str(p.relative_to(folder)): p.read_bytes() for p in files}


def test_a_directory_arrives_whole_under_the_name_of_its_content(model: Path, cache: Path) -> None:
    there = Path(send(model, THERE))
    assert there == cache / content(model)
    assert tree(there) == tree(model)
    assert [p.name for p in cache.iterdir()] == [there.name], "nothing half-sent is left"
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700


def test_what_is_there_is_not_sent_again(model: Path, monkeypatch) -> None:
    first = send(model, THERE)
    monkeypatch.setattr(Porter, "write", lambda *_: pytest.fail("sent again"))
    assert send(model, THERE) == first


def test_what_was_damaged_on_the_node_is_sent_again(model: Path) -> None:
    there = Path(send(model, THERE))
    (there / "config.json").write_text("[]")
    assert tree(Path(send(model, THERE))) == tree(model)


def test_damage_on_the_way_is_noticed(model: Path, cache: Path, monkeypatch) -> None:
    write = Porter.write
    monkeypatch.setattr(Porter, "write", lambda self, name, data: write(self, name, data[:-1]))
    with pytest.raises(DiskError, match=r"damaged at node 10\.0\.0\.2"):
        send(model, THERE)
    assert list(cache.iterdir()) == []


def test_nothing_half_sent_is_left_where_sending_fails(
    model: Path, cache: Path, monkeypatch
) -> None:
    class Ray:
        """Of which an actor is a :class:`Handle`."""

        killed: ClassVar[list[Handle]] = []

        def remote(self, *_: object) -> Any:
            return Handle() if not _ else self

        def options(self, **_: object) -> Any:
            return self

        def get(self, answer: object, timeout: float) -> object:
            return answer

        def kill(self, porter: Handle, no_restart: bool) -> None:
            self.killed.append(porter)

    def full(self: Porter, name: str, data: bytes) -> None:
        assert len(list(cache.iterdir())) == 1, "it is on its way"
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(node_files, "_porter", PORTER)
    monkeypatch.setattr(node_files, "ray", Ray())
    monkeypatch.setattr(Porter, "write", full)
    with pytest.raises(OSError, match="No space"):
        send(model, Node("0b" * 28, "10.0.0.2", 4.0))
    assert list(cache.iterdir()) == []
    assert len(Ray.killed) == 1


def test_what_comes_back_damaged_is_removed_there(cache: Path, tmp_path: Path, monkeypatch) -> None:
    folder = outgoing(THERE)
    (Path(folder) / "weights").write_bytes(b"123")
    monkeypatch.setattr(Porter, "read", lambda self, path, offset: b"321"[offset:])
    with pytest.raises(DiskError, match=r"damaged from node 10\.0\.0\.2"):
        fetch(folder, THERE, tmp_path / "back")
    assert list(cache.iterdir()) == []


def test_a_file_that_became_shorter_is_told_and_not_waited_for(
    cache: Path, tmp_path: Path, monkeypatch
) -> None:
    folder = outgoing(THERE)
    (Path(folder) / "weights").write_bytes(b"123")
    monkeypatch.setattr(Porter, "read", lambda self, path, offset: b"12"[offset:])
    with pytest.raises(DiskError, match=r"damaged from node 10\.0\.0\.2"):
        fetch(folder, THERE, tmp_path / "back")


def test_what_a_rank_saved_comes_back(model: Path, cache: Path, tmp_path: Path) -> None:
    folder = outgoing(THERE)
    for name, data in tree(model).items():
        file = Path(folder) / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(data)
    fetch(folder, THERE, tmp_path / "back")
    assert tree(tmp_path / "back") == tree(model)
    assert list(cache.iterdir()) == []


def test_a_cache_that_others_may_enter_is_refused(cache: Path, model: Path) -> None:
    cache.mkdir(parents=True)
    cache.chmod(0o755)
    with pytest.raises(DiskError, match="others may enter"):
        send(model, THERE)


def test_the_porter_removes_only_what_it_brought(cache: Path, tmp_path: Path, model: Path) -> None:
    Porter().forget(str(model))
    assert model.is_dir()
    there = send(model, THERE)
    Porter().forget(there)
    assert not Path(there).exists()


def test_a_node_that_goes_meanwhile_counts_as_a_death(model: Path, monkeypatch) -> None:
    """The run then continues from its last checkpoint, as after any other loss of a node."""

    def gone(references: object, timeout: float) -> None:
        raise ActorDiedError

    monkeypatch.setattr(node_files, "_wait", WAIT)
    monkeypatch.setattr(node_files.ray, "get", gone)
    with pytest.raises(WorkerDiedError, match=r"died: sending .*model to node 10\.0\.0\.2"):
        send(model, THERE)


def test_a_node_without_room_is_named(model: Path, monkeypatch) -> None:
    def full(references: object, timeout: float) -> None:
        raise RayTaskError("write", "", OSError(28, "No space left on device"))

    monkeypatch.setattr(node_files, "_wait", WAIT)
    monkeypatch.setattr(node_files.ray, "get", full)
    with pytest.raises(DiskError, match=r"to node 10\.0\.0\.2: .*No space left"):
        send(model, THERE)

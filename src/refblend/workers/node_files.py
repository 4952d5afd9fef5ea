"""Files on their way to a node without a shared file system, and back from it.

They travel in chunks through Ray's object store. What is sent lies in a folder of the node's user
that is named after its content, so that a model is sent once to each node, whatever the number of
processes and runs there.
"""

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, ObjectLostError, RayActorError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from refblend.errors import DiskError, RefblendError
from refblend.files import sha256_file, user_cache
from refblend.lifecycle.stalls import stall_limit
from refblend.workers.placement import Node
from refblend.workers.restarts import WorkerDiedError

CHUNK = 32 * 2**20
"""Bytes that are in the object store at a time."""
TRANSFER_S = 600.0
"""Deadline of one chunk, and of reading a model once on its node."""

ABANDON_S = 30.0
"""Deadline of removing what came of a transfer that failed."""


def cache_folder() -> Path:
    """refblend's folder for sent files on this machine; DiskError if others may enter it."""
    folder = user_cache() / "nodes"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    found = folder.stat()
    if found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise DiskError(
            f"{folder} belongs to another user, or others may enter it", f"chmod 700 {folder}."
        )
    return folder


def files_of(path: Path) -> list[tuple[str, Path]]:
    """A file, or all files of a directory, by their names below it."""
    if path.is_file():
        return [(path.name, path)]
    return sorted((p.relative_to(path).as_posix(), p) for p in path.rglob("*") if p.is_file())


def content(path: Path) -> str:
    """SHA-256 over the names and contents of what :func:`files_of` finds."""
    digest = hashlib.sha256()
    for name, file in files_of(path):
        digest.update(f"{name}\0{sha256_file(file)}\n".encode())
    return digest.hexdigest()


class Porter:
    """A process on a node that takes and gives files."""

    _staged: Path | None = None
    """Where files lie that are on their way."""

    def receive(self, digest: str) -> str | None:
        """Prepare for files of this content; the folder where they lie, if they are there."""
        self._target = cache_folder() / digest
        if self._target.is_dir():
            if content(self._target) == digest:
                return str(self._target)
            shutil.rmtree(self._target)
        self._staged = Path(tempfile.mkdtemp(dir=cache_folder(), prefix=".incoming-"))
        return None

    def write(self, name: str, data: bytes) -> None:
        """Append to a file that is on its way."""
        assert self._staged is not None, "receive comes first"
        file = self._staged / name
        file.parent.mkdir(parents=True, exist_ok=True)
        with open(file, "ab") as stream:
            stream.write(data)

    def keep(self, digest: str) -> str | None:
        """Check what has come and give it its name; None when it was damaged."""
        assert self._staged is not None, "receive comes first"
        whole = content(self._staged) == digest
        if whole:
            with contextlib.suppress(OSError):  # another run may have been faster
                self._staged.rename(self._target)
        self.abandon()
        return str(self._target) if whole else None

    def abandon(self) -> None:
        """Remove what is on its way."""
        if self._staged is not None:
            shutil.rmtree(self._staged, ignore_errors=True)

    def outgoing(self) -> str:
        """An empty folder for what will be fetched."""
        return tempfile.mkdtemp(dir=cache_folder(), prefix=".outgoing-")

    def listing(self, folder: str) -> list[tuple[str, str]]:
        """Name and SHA-256 of each file."""
        return [(name, sha256_file(file)) for name, file in files_of(Path(folder))]

    def read(self, path: str, offset: int) -> bytes:
        """A chunk of a file; nothing at its end."""
        with open(path, "rb") as stream:
            stream.seek(offset)
            return stream.read(CHUNK)

    def forget(self, folder: str) -> None:
        """Remove what was sent or fetched."""
        if Path(folder).parent == cache_folder():
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _porter(node: Node) -> Iterator[Any]:
    place = NodeAffinitySchedulingStrategy(node.id, soft=False)
    porter = ray.remote(Porter).options(num_cpus=0, scheduling_strategy=place).remote()
    try:
        yield porter
    except BaseException:
        with contextlib.suppress(Exception):  # the node may be gone
            ray.get(porter.abandon.remote(), timeout=ABANDON_S)
        raise
    finally:
        ray.kill(porter, no_restart=True)


def _wait(what: str, reference: Any) -> Any:
    """The porter's answer; WorkerDiedError where its node is gone, DiskError for its disk."""
    try:
        with stall_limit(what, TRANSFER_S):
            return ray.get(reference, timeout=TRANSFER_S)
    except (RayActorError, ObjectLostError, GetTimeoutError) as error:
        raise WorkerDiedError("file", f"{what}: {type(error).__name__}") from None
    except RayTaskError as error:
        if isinstance(error.cause, RefblendError):
            raise error.cause from None
        if isinstance(error.cause, OSError):
            raise DiskError(f"{what}: {error.cause}", "Look at that node's disk.") from None
        raise


def _damaged(path: Path, where: str, node: Node) -> DiskError:
    return DiskError(
        f"{path} arrived damaged {where} node {node.address}",
        "Look at that node's disk and memory, and call the same command again.",
    )


def send(path: Path, node: Node) -> str:
    """Bring a file or directory to a node, unless it is there; the folder there.

    DiskError or WorkerDiedError: the node has no room or is gone, or damaged files arrive.
    """
    digest = content(path)
    told = f"sending {path} to node {node.address}"
    with _porter(node) as porter:
        there = _wait(told, porter.receive.remote(digest))
        if there is None:
            for name, file in files_of(path):
                _wait(told, porter.write.remote(name, b""))  # of an empty file nothing else comes
                with open(file, "rb") as stream:
                    while data := stream.read(CHUNK):
                        _wait(told, porter.write.remote(name, data))
            there = _wait(told, porter.keep.remote(digest))
    if there is None:
        raise _damaged(path, "at", node)
    return str(there)


def fetch(folder: str, node: Node, target: Path) -> None:
    """Bring what lies in a node's folder here, checked (else DiskError), and remove it there."""
    told = f"fetching {target.name} from node {node.address}"
    with _porter(node) as porter:
        try:
            for name, digest in _wait(told, porter.listing.remote(folder)):
                file, source = target / name, str(Path(folder) / name)
                file.parent.mkdir(parents=True, exist_ok=True)
                with open(file, "wb") as stream:
                    while data := _wait(told, porter.read.remote(source, stream.tell())):
                        stream.write(data)
                if sha256_file(file) != digest:
                    raise _damaged(file, "from", node)
        finally:
            _wait(told, porter.forget.remote(folder))


def outgoing(node: Node) -> str:
    """An empty folder on a node for files that will be fetched."""
    with _porter(node) as porter:
        return str(_wait(f"preparing node {node.address}", porter.outgoing.remote()))


def forget(folder: str, node: Node) -> None:
    """Remove what :func:`send` brought."""
    with _porter(node) as porter:
        _wait(f"cleaning node {node.address}", porter.forget.remote(folder))

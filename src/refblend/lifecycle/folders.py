"""Temporary folders that are removed with their command.

Containers may share one temporary folder, so each holds its owner's lock and the kernel's boot id.
It is removed only if it is of this boot and its lock is free.
"""

import contextlib
import fcntl
import itertools
import logging
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from refblend.errors import ResourceError

PREFIX = "refblend-ray-"
"""Folders of private Ray clusters: prefix, process, random text."""
LONGEST = 38
"""Characters of a folder in which Ray's sockets have room: the kernel allows 107 in all."""
_OWNER = "owner"
_SHARED_MEMORY = "/dev/shm"
_SHORT = ("/tmp", "/var/tmp", "/dev/shm")

_mark = ""
_number = itertools.count()


def mark_command() -> str:
    """Give the folders of this process and its forks one common mark, and return it."""
    global _mark
    _mark = f"{os.getpid()}-{secrets.token_hex(3)}"
    return _mark


@contextlib.contextmanager
def command_folder() -> Iterator[Path]:
    """A private temporary folder for the block, with a path short enough for sockets."""
    _remove_dead()
    # Ray processes that have not ended yet may keep files in the folder of the cluster before.
    name = f"{PREFIX}{_mark or mark_command()}.{next(_number)}"
    root = _temporary()
    with _owned(root / name) as folder:
        if len(os.fsencode(folder)) <= LONGEST:
            yield folder
            return
        with _owned(_short_root(root) / name) as beside:
            (beside / "f").symlink_to(folder)
            yield beside / "f"


@contextlib.contextmanager
def writable_home() -> Iterator[None]:
    """Set a temporary ``HOME`` for libraries' caches if the real one is not writable."""
    home = Path.home()
    with contextlib.suppress(OSError):
        home.mkdir(parents=True, exist_ok=True)
    if os.access(home, os.W_OK | os.X_OK):
        yield
        return
    with tempfile.TemporaryDirectory(prefix="refblend-home-", ignore_cleanup_errors=True) as other:
        logging.warning("HOME=%s cannot be written: caches last as long as this command", home)
        os.environ["HOME"] = other
        yield


def check_temporary() -> None:
    """Refuse (ResourceError) a machine without shared memory or a usable temporary folder."""
    if not os.access(_SHARED_MEMORY, os.W_OK | os.X_OK):
        raise ResourceError(
            f"{_SHARED_MEMORY} is not there or cannot be written: Ray and vLLM share memory in it",
            f"Mount it: mount -t tmpfs none {_SHARED_MEMORY}; containers have it by default.",
        )
    root = _temporary()
    if len(os.fsencode(root / PREFIX)) + 17 > LONGEST:
        _short_root(root)


def folders_of(mark: str) -> list[Path]:
    """Folders whose mark starts with ``mark``."""
    roots = dict.fromkeys([_temporary(), *filter(Path.is_dir, map(Path, _SHORT))])
    return [folder for root in roots for folder in root.glob(f"{PREFIX}{mark}*")]


def _temporary() -> Path:
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        raise ResourceError(
            f"no folder for temporary files can be written ({error.strerror})",
            "Set TMPDIR to one that can.",
        ) from error


def _short_root(root: Path) -> Path:
    for place in map(Path, _SHORT):
        if place.is_dir() and os.access(place, os.W_OK | os.X_OK):
            return place
    raise ResourceError(
        f"TMPDIR={root} is too long for the names of Ray's sockets, and none of "
        f"{', '.join(_SHORT)} can be written",
        "Set TMPDIR to a folder with a short name.",
    )


@contextlib.contextmanager
def _owned(folder: Path) -> Iterator[Path]:
    """A new folder with this process's lock."""
    folder.mkdir(mode=0o700)
    with open(folder / _OWNER, "w", encoding="ascii") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        stream.write(_boot())  # after the lock: without it nobody removes the folder
        stream.flush()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _remove_dead() -> None:
    """Remove the folders of commands that were killed."""
    for folder in folders_of(""):
        # What has no lock, or another user's, is not ours to judge.
        with contextlib.suppress(OSError), open(folder / _OWNER, "r+", encoding="ascii") as stream:
            if stream.read() == _boot():
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)

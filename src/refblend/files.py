"""File effects shared by all layers: atomic writes and content hashes."""

import contextlib
import errno
import hashlib
import json
import lzma
import os
import secrets
import shutil
import tarfile
import zlib
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from refblend.documents import MalformedError, parse_json, shorten
from refblend.errors import RefblendError

OPTIMIZER_FILE = "optimizer.pt"
"""Beside a model's weights: the state of the optimiser that made them."""


@contextlib.contextmanager
def atomic_path(target: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path next to ``target``; fsync and rename it to ``target`` on success.

    A link is followed. On an exception the temporary file is removed and ``target`` is unchanged.
    OSError if the directory cannot be written, or ``target`` is no regular file.
    """
    target = Path(os.path.realpath(target))
    if target.exists() and not target.is_file():
        raise FileExistsError(errno.EEXIST, "it exists and is no regular file", str(target))
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    temporary.touch(exist_ok=False)
    try:
        yield temporary
        with open(temporary, "rb") as stream:
            os.fsync(stream.fileno())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def unpacked(
    source: Path,
    into: Path,
    command: str,
    error: type[RefblendError],
    member_filter: Callable[[tarfile.TarInfo, str], tarfile.TarInfo | None] = tarfile.data_filter,
) -> Iterator[Path]:
    """Yield a temporary folder in ``into`` with what a .tar file holds; it is removed afterwards.

    ``error`` is raised for a file that cannot be one of ``command``, here or by the block.
    """
    staged = into / f".{source.name}.tmp"
    shutil.rmtree(staged, ignore_errors=True)
    try:
        with tarfile.open(source) as archive:
            archive.extractall(staged, filter=member_filter)
        yield staged
    # tarfile lets the last three through.
    except (tarfile.TarError, OSError, ValueError, EOFError, lzma.LZMAError, zlib.error) as found:
        raise error(
            f"{source} cannot be unpacked ({shorten(str(found))})", f"Give a file of `{command}`."
        ) from found
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def write_text(target: str | os.PathLike[str], text: str) -> None:
    """Write UTF-8 text atomically."""
    with atomic_path(target) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(target: str | os.PathLike[str], value: Any) -> None:
    """Write indented JSON with sorted keys atomically (NaN and infinities are refused)."""
    write_text(target, json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n")


def read_object(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a UTF-8 JSON file that holds an object; MalformedError, a ``ValueError``, if not."""
    value = parse_json(Path(path).read_bytes())
    if not isinstance(value, dict):
        raise MalformedError(f"{Path(path).name} does not hold a JSON object")
    return value


def read_record(path: Path, error: type[RefblendError], remedy: str) -> dict[str, Any]:
    """The JSON object in a file; ``error`` with the remedy if it cannot be read."""
    try:
        return read_object(path)
    except (OSError, ValueError) as problem:
        raise error(f"{path} cannot be read ({problem})", remedy) from None


def copy_file(source: Path, target: Path) -> None:
    """Copy a file atomically, unless the target has its content already."""
    if target.is_file() and target.read_bytes() == source.read_bytes():
        return
    with atomic_path(target) as temporary:
        shutil.copyfile(source, temporary)


def sha256_file(path: str | os.PathLike[str]) -> str:
    """Hexadecimal SHA-256 of a file's bytes."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def sha256_tree(root: str | os.PathLike[str], without: Collection[str] = ()) -> str:
    """Hash of the relative paths and contents of all files below ``root`` but those so named.

    Hidden ones do not count: ``hf download`` leaves times in ``.cache``.
    """
    root = Path(root)
    files = {p.relative_to(root).as_posix(): p for p in sorted(root.rglob("*")) if p.is_file()}
    digest = hashlib.sha256()
    for name, path in files.items():
        if path.name not in without and "/." not in f"/{name}":
            digest.update(f"{name}\0{sha256_file(path)}\n".encode())
    return digest.hexdigest()


_MADE = {
    "data": ("train.", "validation.", "test.", "sanity."),
    "models": ("actor", "judge", "tokenizer", "base"),
}
"""What the workflow makes for a scale: folder, and how the names in it begin."""


def how_to_get(path: Path, otherwise: str) -> str:
    """What to do about an input that is not there: make it, if the workflow does, or ``otherwise``.

    Only in a checkout is there a workflow; ``otherwise`` is an imperative sentence.
    """
    folder, scale, name = path.parts if len(path.parts) == 3 else ("", "", "")
    made_by = Path("params", "scale" if folder == "data" else "embedded", f"{scale}.yaml")
    if not name.startswith(_MADE.get(folder, "/")) or not made_by.is_file():
        return otherwise
    command = "make prepare" if scale == "smoke" else f"make prepare SCALE={scale}"
    if name == "base":
        command = "make pretrained"
    return f"Make it with `{command}`, or {otherwise[:1].lower()}{otherwise[1:]}"

"""The manifest of a checkpoint: what makes it whole, and how its damage is found."""

import os
import stat
from pathlib import Path
from typing import Any

from refblend.documents import shorten, show
from refblend.files import read_json, read_object, sha256_file, write_json

STATE_NAME = "trainer_state.json"
MANIFEST_NAME = "manifest.json"
PREFIX = "global_step_"


def write_manifest(staged: Path, step: int) -> None:
    """Record size and checksum of every file of a staged checkpoint, and flush all to the disk."""
    files = {
        path.relative_to(staged).as_posix(): {
            "sha256": sha256_file(path),
            "size": path.stat().st_size,
        }
        for path in sorted(staged.rglob("*"))
        if path.is_file()
    }
    write_json(staged / MANIFEST_NAME, {"step": step, "files": files})
    for directory, _, names in os.walk(staged, topdown=False):
        for name in names:
            fsync(Path(directory) / name)
        fsync(Path(directory))


def fsync(path: Path) -> None:
    """Flush a file's bytes, or a directory's names, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def find_damage(path: Path) -> str | None:
    """What is wrong with a checkpoint directory, in one phrase; None if it is complete."""
    try:
        present = _entries(path)
        if present.get(MANIFEST_NAME, 0) is None:
            return f"{MANIFEST_NAME} is not a plain file"
        manifest = read_json(path / MANIFEST_NAME)
        files = manifest["files"]
        for name, entry in files.items():
            size = present.pop(name, None)
            if size is None:
                return f"{shorten(name)} is missing, or not a plain file within the checkpoint"
            if size != entry["size"]:
                return f"{name} has {size} bytes, not {show(entry['size'])}"
        present.pop(MANIFEST_NAME, None)
        if present:
            return f"{min(present)} is not in {MANIFEST_NAME}, or is not a plain file"
        step = manifest["step"]
        if type(step) is not int or path.name != f"{PREFIX}{step}":
            return f"{MANIFEST_NAME} is of step {show(step)}"
        for name, entry in files.items():
            if sha256_file(path / name) != entry["sha256"]:
                return f"the checksum of {name} differs"
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except OSError as error:
        return f"{error.filename} cannot be read ({error.strerror})"
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"{MANIFEST_NAME} is not a manifest"
    return None if STATE_NAME in files else f"{STATE_NAME} is missing"


def _entries(root: Path) -> dict[str, int | None]:
    """Relative names of what lies below a checkpoint, with the size of each plain file.

    Directories are left out; links, pipes and the like have no size: a checkpoint has none.
    """
    found: dict[str, int | None] = {}
    for folder, directories, names in os.walk(root):
        for name in (*names, *directories):
            path = Path(folder) / name
            status = path.lstat()
            if not stat.S_ISDIR(status.st_mode):
                plain = stat.S_ISREG(status.st_mode)
                found[path.relative_to(root).as_posix()] = status.st_size if plain else None
    return found


def read_state(checkpoint: Path) -> dict[str, Any]:
    """``trainer_state.json`` of a checkpoint; a link or a pipe is not opened.

    Raises:
        OSError, ValueError: the file is missing, of another kind, or holds something else.
    """
    path = checkpoint / STATE_NAME
    if not stat.S_ISREG(path.lstat().st_mode):
        raise ValueError("it is not a plain file")
    return read_object(path)

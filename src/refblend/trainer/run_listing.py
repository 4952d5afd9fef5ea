"""The runs below a folder, and the removal of those that were moved aside."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from refblend.errors import CheckpointError
from refblend.files import read_object
from refblend.identity import IDENTITY_NAME
from refblend.trainer.run_directory import is_aside, run_lock


@dataclass(frozen=True)
class FoundRun:
    """A run's directory."""

    path: Path
    status: str
    """From ``summary.json``; ``incomplete`` without one."""
    size: int
    """Bytes of all its files; a file that several runs share counts in each of them."""
    aside: bool
    """Whether it was moved aside for another run."""


def find_runs(root: Path) -> Iterator[FoundRun]:
    """All runs below the folder ``root``, or ``root`` itself, by path; else CheckpointError."""
    if not Path(root).is_dir():
        raise CheckpointError(f"{root} is not a directory", "Give the folder of your runs.")
    for mark in sorted(Path(root).rglob(IDENTITY_NAME)):
        path = mark.parent
        files = (p for p in path.rglob("*") if p.is_file() and not p.is_symlink())
        yield FoundRun(path, _status(path), sum(p.stat().st_size for p in files), is_aside(path))


def remove_aside(run: FoundRun) -> None:
    """Delete a run that was moved aside; CheckpointError if it was not, or if it is in use."""
    if not run.aside:
        raise CheckpointError(
            f"{run.path} was not moved aside", "Delete it by hand if you want to."
        )
    with run_lock(run.path):
        # Renamed first, so that a kill leaves no partial run under its name.
        doomed = run.path.with_name(f".{run.path.name}.tmp")
        run.path.rename(doomed)
        shutil.rmtree(doomed)


def _status(path: Path) -> str:
    try:
        return str(read_object(path / "summary.json").get("status", "finished"))
    except (FileNotFoundError, ValueError):
        return "incomplete"

"""Checkpoints that are either complete or absent.

Layout below ``<run>/checkpoints`` (verl's names)::

    global_step_10/actor/…            written by the workers
    global_step_10/critic/…           only with a critic
    global_step_10/trainer_state.json step, metric and the trainer's own state
    global_step_10/manifest.json      size and SHA-256 of every other file
    latest_checkpointed_iteration.txt "10", written last

A checkpoint is staged under a temporary name, every file and directory is fsynced, and one rename
makes it visible. The directories are the truth; the text file is for people and verl's tools.
"""

import contextlib
import errno
import logging
import math
import os
import re
import shutil
import stat
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from refblend.documents import shorten, show
from refblend.errors import CheckpointError
from refblend.files import read_object, sha256_file, write_json, write_text
from refblend.lifecycle.faults import explained

logger = logging.getLogger(__name__)

STATE_NAME = "trainer_state.json"
MANIFEST_NAME = "manifest.json"
LATEST_NAME = "latest_checkpointed_iteration.txt"
PREFIX = "global_step_"


def write_manifest(staged: Path, step: int) -> None:
    """Record size and checksum of every file of a staged checkpoint, and flush all to the disk."""
    files = {name: _fingerprint(staged / name) for name in sorted(_entries(staged))}
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


_WHOLE: dict[Path, dict[Path, tuple[int, int]]] = {}
"""The stamps of checkpoints that this process has written, or read and found whole."""


def find_damage(path: Path) -> str | None:
    """What is wrong with a checkpoint directory, in one phrase; None if it is complete.

    Large files, which take minutes, are read only once while nobody touches them.
    """
    try:
        stamps = _stamps(path)
        if _WHOLE.get(path) == stamps:
            return None
        manifest = read_object(_plain(path / MANIFEST_NAME))
        files, step = manifest["files"], manifest["step"]
        if different := _entries(path) ^ files.keys():
            return f"{shorten(min(different))} is missing, or not in {MANIFEST_NAME}"
        if type(step) is not int or path.name != f"{PREFIX}{step}":
            return f"{MANIFEST_NAME} is of step {show(step)}"
        for name, expected in files.items():
            if _fingerprint(path / name) != expected:
                return f"size or checksum of {name} differs"
    except OSError as error:
        return f"{Path(error.filename or path).name} cannot be read ({error.strerror})"
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"{MANIFEST_NAME} is not a manifest"
    if STATE_NAME not in files:
        return f"{STATE_NAME} is missing"
    _WHOLE[path] = stamps
    return None


def _entries(root: Path) -> set[str]:
    """Relative paths of all that a checkpoint holds, links too, but for folders and manifest."""
    held = (path for path in root.rglob("*") if path.is_symlink() or not path.is_dir())
    return {path.relative_to(root).as_posix() for path in held} - {MANIFEST_NAME}


def _stamps(root: Path) -> dict[Path, tuple[int, int]]:
    """Size in bytes and time of the last change in ns of each file and folder."""
    found = {path: path.lstat() for path in root.rglob("*")}
    return {path: (each.st_size, each.st_mtime_ns) for path, each in found.items()}


def _fingerprint(path: Path) -> dict[str, Any]:
    return {"sha256": sha256_file(_plain(path)), "size": path.stat().st_size}


def _plain(path: Path) -> Path:
    """The path of a file, not of a link or a pipe, which is not to be opened; or OSError."""
    if not stat.S_ISREG(path.lstat().st_mode):
        raise OSError(errno.EINVAL, "not a plain file", str(path))
    return path


def read_state(checkpoint: Path) -> dict[str, Any]:
    """``trainer_state.json``, or OSError or ValueError; a link or a pipe is not opened."""
    return read_object(_plain(checkpoint / STATE_NAME))


@dataclass(frozen=True)
class CheckpointRef:
    """A checkpoint on disk: its step and its directory."""

    step: int
    path: Path

    @property
    def actor(self) -> Path:
        """Directory of the actor's files: a model directory."""
        return self.path / "actor"


def write_state(directory: Path, state: dict[str, Any], metric: float | None = None) -> None:
    """Write ``trainer_state.json`` into a staging directory; ``metric`` ranks for keep-best."""
    write_json(directory / STATE_NAME, {"metric": metric, "state": state})


def step_of(path: Path) -> int | None:
    """The step in a checkpoint directory's name; None for other spellings, such as 007."""
    found = re.fullmatch(PREFIX + r"(0|[1-9][0-9]{0,17})", path.name)
    return int(found[1]) if found else None


def named_checkpoint(path: str | Path, total_steps: int) -> CheckpointRef:
    """The checkpoint at which a run begins; CheckpointError if it is damaged, or at its end."""
    path = Path(path)
    step = step_of(path)
    if step is None or not path.is_dir():
        raise CheckpointError(
            f"{path} is not a checkpoint directory",
            "Set trainer.resume_from_path to an existing global_step_N directory.",
        )
    if step >= total_steps:
        told = f"trainer.resume_from_path={path}: the run ends at step {total_steps}"
        raise CheckpointError(told, "Raise trainer.total_training_steps.")
    if (damage := find_damage(path)) is not None:
        raise CheckpointError(f"checkpoint {path} is damaged: {damage}", "Choose another one.")
    return CheckpointRef(step, path)


@dataclass(frozen=True)
class CheckpointManager:
    """Writes, finds and prunes the checkpoints of one run, which one process at a time may use."""

    root: Path
    """The ``checkpoints`` directory of the run; created on the first save."""
    keep_last: int = 2
    """Number of newest checkpoints to keep."""
    keep_best: bool = True
    """Keep also the checkpoint with the highest metric, of equal ones the earliest."""

    def steps(self) -> list[int]:
        """Steps that have a checkpoint directory, complete or not, ascending."""
        if not self.root.is_dir():
            return []
        found = (step_of(p) for p in self.root.glob(f"{PREFIX}*") if p.is_dir())
        return sorted(step for step in found if step is not None)

    def saved_before(self) -> bool:
        """Whether a checkpoint was ever completed here, even if it is damaged now."""
        return bool(self.steps()) or (self.root / LATEST_NAME).exists()

    def path(self, step: int) -> Path:
        """Directory of the checkpoint of ``step``, existing or not."""
        return self.root / f"{PREFIX}{step}"

    @contextlib.contextmanager
    def staging(self, step: int) -> Iterator[Path]:
        """Yield an empty directory for workers to write into; make it the checkpoint of ``step``.

        The body must also call :func:`write_state`. When it raises, nothing becomes visible.
        CheckpointError or DiskError: the place is taken, too small, full or read-only.
        """
        self._require_space()
        staged = self._temporary(step)
        with explained(self.root):
            try:
                self.clean()
                staged.mkdir(parents=True)
                yield staged
                if not (staged / STATE_NAME).is_file():
                    raise ValueError("write_state was not called for the staged checkpoint")
                write_manifest(staged, step)
                self._publish(staged, step)
                _WHOLE[self.path(step)] = _stamps(self.path(step))  # hashed just now
                write_text(self.root / LATEST_NAME, f"{step}\n")
                fsync(self.root)
                self._prune(step)
            except FileNotFoundError as error:
                if self.root.exists():
                    raise
                raise CheckpointError(
                    f"{self.root} was removed during the run", "Call the same command again."
                ) from error
            finally:
                shutil.rmtree(staged, ignore_errors=True)

    def latest_valid(self) -> CheckpointRef | None:
        """The newest checkpoint whose files all match its manifest; damaged ones give a warning."""
        self.clean()
        return self._first_whole(reversed(self.steps()), "is ignored")

    def load_state(self, ref: CheckpointRef) -> dict[str, Any]:
        """The state that was given to :func:`write_state`."""
        try:
            state = read_state(ref.path)["state"]
            if not isinstance(state, dict):
                raise ValueError("its state is not an object")
        except (OSError, ValueError, KeyError) as error:
            raise CheckpointError(
                f"{ref.path / STATE_NAME} cannot be read ({error})", "Choose another checkpoint."
            ) from error
        return state

    def best(self) -> CheckpointRef | None:
        """The whole checkpoint with the highest recorded metric; damaged ones give a warning."""
        metrics = {step: self._metric(step) for step in self.steps()}
        known = [(-metric, step) for step, metric in metrics.items() if metric is not None]
        steps = (step for _, step in sorted(known))
        return self._first_whole(steps, "cannot be the best")

    def _first_whole(self, steps: Iterable[int], complaint: str) -> CheckpointRef | None:
        """The first checkpoint that is whole; a warning with the complaint for each before it."""
        for step in steps:
            damage = find_damage(self.path(step))
            if damage is None:
                return CheckpointRef(step, self.path(step))
            logger.warning("checkpoint %s %s: %s", self.path(step), complaint, damage)
        return None

    def lacks_best(self, metric: float | None) -> bool:
        """Whether the best checkpoint is wanted, and weights of this ``metric`` would be it."""
        if not self.keep_best or metric is None:
            return False
        best = self.best()
        known = None if best is None else self._metric(best.step)
        return known is None or metric > known

    def discard_after(self, step: int) -> None:
        """Remove the checkpoints of later steps: they belong to an abandoned branch of the run."""
        for later in self.steps():
            if later > step:
                self._remove(later)

    def clean(self) -> None:
        """Remove the temporary directories and files that a killed save left behind."""
        for stray in self.root.glob(".*.tmp") if self.root.is_dir() else ():
            logger.info("removing the unfinished %s", stray)
            _delete(stray)

    def _temporary(self, step: int) -> Path:
        return self.root / f".{PREFIX}{step}.{uuid.uuid4().hex}.tmp"

    def _publish(self, staged: Path, step: int) -> None:
        """Rename the staged directory into place; an older one of the same step gives way."""
        target, old = self.path(step), self._temporary(step)
        if target.exists():
            target.rename(old)
        staged.rename(target)
        _delete(old)
        fsync(self.root)

    def _prune(self, newest: int) -> None:
        """Remove what the policy does not keep."""
        self.discard_after(newest)
        steps = self.steps()
        keep = set(steps[-self.keep_last :])
        best = self.best() if self.keep_best else None
        if best is not None:
            keep.add(best.step)
        for step in set(steps) - keep:
            self._remove(step)

    def _remove(self, step: int) -> None:
        """Remove a checkpoint; renamed first, so that a kill leaves no partial one."""
        shutil.rmtree(self.path(step).rename(self._temporary(step)), ignore_errors=True)

    def _metric(self, step: int) -> float | None:
        """Metric recorded with a checkpoint; None when there is none or it cannot be read."""
        try:
            metric = float(read_state(self.path(step))["metric"])
        except (OSError, ValueError, KeyError, TypeError, OverflowError):
            return None
        return metric if math.isfinite(metric) else None

    def _require_space(self) -> None:
        """Refuse, before the workers start writing, if the last save would not fit again."""
        for step in self.steps()[-1:]:
            needed = sum(p.stat().st_size for p in self.path(step).rglob("*") if p.is_file())
            free = shutil.disk_usage(self.root).free
            if free < needed:
                raise CheckpointError(
                    f"the disk of {self.root} has {free / 1e6:.0f} MB left; a checkpoint needs "
                    f"about {needed / 1e6:.0f} MB",
                    "Free some space, or keep fewer checkpoints, and start again: the run resumes.",
                )


def _delete(path: Path) -> None:
    """Remove a directory with its contents, a file, or a link but not its target."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)

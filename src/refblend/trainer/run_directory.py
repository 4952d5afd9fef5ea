"""The directories of runs: which can be resumed, how a run is moved aside, and what lies there.

No command deletes or empties a run: another run in a directory is refused, or moved aside to
``<directory>.<time>`` with one rename.
"""

import contextlib
import fcntl
import logging
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from refblend.config.trainer import TrainerConfig
from refblend.documents import shorten
from refblend.errors import CheckpointError, RefblendError
from refblend.files import read_object, write_json
from refblend.identity import IDENTITY_NAME, Difference, RunIdentity
from refblend.lifecycle.faults import explained
from refblend.provenance import Source
from refblend.trainer.checkpoint import CheckpointManager, CheckpointRef
from refblend.trainer.tracking import read_metrics

logger = logging.getLogger(__name__)

LOCK_NAME = ".lock"
UNCONFIRMED_NAME = "unconfirmed.json"
"""Says that a job was refused before it compared this finished run with what it asked for
(:func:`refblend.study.runs.checks.record_failure`); :func:`open_run` compares, and removes it."""
FAILURES_NAME = "failures.jsonl"
"""One line per failed attempt of a study's job, each with the identity of the run that failed."""
RUN_ENTRIES = (
    "config.json",
    "metrics.jsonl",
    "summary.json",
    "provenance.json",
    "checkpoints",
    "rollouts",
    "tensorboard",
    "trackers.json",
    "wandb",
)
"""What a run writes into its directory besides the identity."""

ASIDE = re.compile(r".+\.\d{8}T\d{6}Z(-\d+)?(\.tmp)*")
"""With .tmp: its copying or its deletion was interrupted, maybe more than once."""
_WAYS_OUT = (
    "Set trainer.default_local_dir to another directory, or give --overwrite, which moves the run "
    "that is there aside and deletes nothing."
)
_ACCEPT = (
    "Install what is recorded, or set trainer.accept_changes=true: the run then goes on, its "
    "numbers change from here, and provenance.json says so."
)


@dataclass(frozen=True)
class Prepared:
    """How a run starts, and what has changed since it last ran."""

    start: Literal["fresh", "resume"]
    changes: Sequence[Difference] = ()
    finished: Mapping[str, Any] | None = None
    """``summary.json`` of a run that has nothing left to do; only :func:`open_run` looks."""
    checkpoint: CheckpointRef | None = None
    """Where the run goes on; None: at its beginning. Only :func:`open_run` looks."""
    segments: tuple[Source, ...] = ()
    """The sources of a run that is resumed, with that of this session."""


def check_run_dir(path: Path, wanted: RunIdentity, options: TrainerConfig) -> Prepared:
    """What :func:`open_run` would do; CheckpointError lists how another run differs."""
    recorded = _recorded(path)
    if recorded is None:
        return Prepared("fresh")
    changes = recorded.differences(wanted)
    kinds = {"determining"} | (set() if options.accept_changes else {"numerics", "library"})
    if options.strict_code:
        kinds.add("tree")
    refused = [change for change in changes if change.kind in kinds]
    if refused:
        listed = "; ".join(map(str, refused))
        environment = all(change.kind in ("numerics", "library") for change in refused)
        remedy = f"{_ACCEPT} {_WAYS_OUT}" if environment else _WAYS_OUT
        raise CheckpointError(f"{path} holds another run ({listed})", remedy)
    if options.resume_mode != "disable":
        _check_length(path, recorded, wanted)
    return Prepared("resume", tuple(changes), segments=recorded.followed_by(wanted))


@contextlib.contextmanager
def open_run(
    path: Path, wanted: RunIdentity, options: TrainerConfig, overwrite: bool = False
) -> Iterator[Prepared]:
    """Lock a run's directory for this process. Another run in it is refused, or moved aside."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(run_lock(path))
        with explained(path):
            try:
                prepared = check_run_dir(path, wanted, options)
            except CheckpointError as error:
                if not overwrite or not (path / IDENTITY_NAME).exists():
                    raise
                prepared = _make_way(path, error.reason)
            if prepared.start == "resume" and options.resume_mode == "disable":
                prepared = _make_way(path, f"{path} holds this run, and resume_mode is disable")
            elif prepared.start == "resume":
                prepared = _found_start(path, prepared, wanted.total_steps)
            if not (path / LOCK_NAME).exists():  # moved, with the lock in it
                stack.enter_context(run_lock(path))
            (path / UNCONFIRMED_NAME).unlink(missing_ok=True)
        yield prepared


def _found_start(path: Path, prepared: Prepared, total_steps: int) -> Prepared:
    """Where a run resumes. If all its checkpoints are damaged or gone, it is moved aside."""
    summary = read_summary(path)
    reached = summary.get("steps", total_steps) == total_steps
    if summary.get("status") == "finished" and reached:
        return replace(prepared, finished=summary)
    checkpoints = CheckpointManager(path / "checkpoints")
    found = checkpoints.latest_valid()
    if found is None and checkpoints.saved_before():
        return _make_way(path, f"{path} has no whole checkpoint left")
    if found is None and (last := _last_step(path)) > 0:
        told = "%s was ended at step %d, before its first checkpoint: it starts again"
        logger.warning(told, path, last)
    return replace(prepared, checkpoint=found)


def record_start(path: Path, wanted: RunIdentity, prepared: Prepared) -> None:
    """Record the run that starts or continues in a directory."""
    if prepared.segments:
        wanted = replace(wanted, segments=prepared.segments)
    write_json(path / IDENTITY_NAME, wanted.record())


@contextlib.contextmanager
def run_lock(path: Path) -> Iterator[None]:
    """Lock a run directory until this process ends; CheckpointError if another one holds it."""
    with contextlib.ExitStack() as stack:
        with explained(path):
            path.mkdir(parents=True, exist_ok=True)
            stream = stack.enter_context(open(path / LOCK_NAME, "a", encoding="utf-8"))
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CheckpointError(
                f"another process is training in {path}",
                "Wait for it to end, or set trainer.default_local_dir to another directory.",
            ) from error
        yield


def _make_way(path: Path, reason: str) -> Prepared:
    """Move a run aside; CheckpointError for one that its path does not name, such as ``.``."""
    if path.name in ("", ".."):
        raise CheckpointError(
            f"{reason}; it would be moved aside, and trainer.default_local_dir={path} has no name",
            f"Call from another directory, with trainer.default_local_dir={path.resolve()}.",
        )
    name = f"{path.name}.{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    names = (name, *(f"{name}-{n}" for n in range(2, 1000)))
    target = next(place for place in map(path.with_name, names) if not place.exists())
    path.rename(target)
    # The workflow repeats a job whose number of failures has changed, so it must not fall.
    if (failures := target / FAILURES_NAME).exists():
        path.mkdir()
        shutil.copy(failures, path)
    logger.warning(
        "%s: it is moved to %s, and starts again; `refblend runs prune` frees the space of runs "
        "that were moved aside",
        reason,
        target,
    )
    return Prepared("fresh")


def _recorded(path: Path) -> RunIdentity | None:
    """The identity of the run in a directory, None if free; CheckpointError for other files."""
    present = [name for name in RUN_ENTRIES if (path / name).exists()]
    if present == ["summary.json"] and "exit_status" in read_summary(path):
        return None  # the workflow's record of a job that never began to train
    if not (path / IDENTITY_NAME).exists():
        if present:
            raise CheckpointError(
                f"{path} holds {present[0]} but is not marked as a run directory of refblend",
                "Choose an empty directory for trainer.default_local_dir.",
            )
        return None
    try:
        return RunIdentity.from_record(read_object(path / IDENTITY_NAME))
    except ValueError as error:
        raise CheckpointError(
            f"{path / IDENTITY_NAME} is damaged or of another version of refblend ({error}), so "
            "that the run cannot be compared with the wanted one",
            _WAYS_OUT,
        ) from None


def read_summary(path: Path) -> dict[str, Any]:
    """``summary.json`` of a run; empty if there is none, or if it is damaged, with a warning."""
    file = path / "summary.json"
    try:
        summary = read_object(file) if file.exists() else {}
        if summary and "status" not in summary:
            raise ValueError("it has no status")
        return summary
    except ValueError as error:
        logger.warning("%s is damaged (%s) and says nothing", file, error)
        return {}


def _check_length(path: Path, recorded: RunIdentity, wanted: RunIdentity) -> None:
    """Refuse to shorten a run below its current length, and to extend one without a checkpoint."""
    if wanted.total_steps == recorded.total_steps:
        return
    done = _last_step(path)
    if done > wanted.total_steps:
        raise CheckpointError(
            f"{path} holds {done} steps of this run already, more than "
            f"trainer.total_training_steps={wanted.total_steps}",
            f"Ask for {done} steps or more, or: {_WAYS_OUT[0].lower()}{_WAYS_OUT[1:]}",
        )
    finished = done == recorded.total_steps
    if finished and CheckpointManager(path / "checkpoints").latest_valid() is None:
        raise CheckpointError(
            f"{path} holds the finished run of {done} steps without a whole checkpoint, so that it "
            f"cannot go on to step {wanted.total_steps}",
            _WAYS_OUT,
        )


def _last_step(path: Path) -> int:
    """The last step with metrics; -1 without any, or if they are damaged (reported on resume)."""
    try:
        steps = read_metrics(path / "metrics.jsonl")["step"]
    except RefblendError:
        return -1
    return int(steps.max()) if len(steps) else -1


@dataclass(frozen=True)
class FoundRun:
    """A run's directory."""

    path: Path
    status: str
    """From ``summary.json``; ``incomplete`` without one."""
    reason: str
    """Why it ended early, from ``summary.json``; maybe empty."""
    size: int
    """Bytes of all its files; a file that several runs share counts in each of them."""
    aside: bool
    """Whether it was moved aside for another run."""


def find_runs(root: Path) -> Iterator[FoundRun]:
    """All runs below the folder ``root``, or ``root`` itself, by path; else CheckpointError."""
    if not root.is_dir():
        raise CheckpointError(f"{root} is not a directory", "Give the folder of your runs.")
    marks = (IDENTITY_NAME, FAILURES_NAME)  # a study's job may fail before a run has begun
    for path in sorted({path.parent for path in _files(root) if path.name in marks}):
        size = sum(map(_size, _files(path)))
        aside = (path / IDENTITY_NAME).is_file() and ASIDE.fullmatch(path.name) is not None
        summary = read_summary(path)
        status = str(summary.get("status", "incomplete"))
        yield FoundRun(path, status, shorten(str(summary.get("reason") or ""), 200), size, aside)


def _files(folder: Path) -> Iterator[Path]:
    """All files below a folder, where a run that trains may remove some meanwhile."""
    return (Path(place, name) for place, _, names in os.walk(folder) for name in names)


def _size(path: Path) -> int:
    """Bytes of a file; 0 of a link, or if it is gone."""
    with contextlib.suppress(FileNotFoundError):
        return 0 if path.is_symlink() else path.lstat().st_size
    return 0


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

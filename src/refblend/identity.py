"""What a run is, and the directory that belongs to it.

The *identity* of a run is one hash over what determines its numbers: resolved configuration, data,
models and the training code. A run directory is resumed only by a run of the same identity.
"""

import contextlib
import fcntl
import hashlib
import json
import logging
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from refblend.errors import CheckpointError, DataError, ModelError
from refblend.files import read_json, sha256_file, sha256_tree, write_json
from refblend.numeric_code import code_hash

logger = logging.getLogger(__name__)

IDENTITY_NAME = "identity.json"
LOCK_NAME = ".lock"
RUN_ENTRIES = (
    "config.json",
    "metrics.jsonl",
    "summary.json",
    "provenance.json",
    "checkpoints",
    "rollouts",
    "tensorboard",
)
"""What a run writes into its directory beside the identity; nothing else is ever removed."""


@dataclass(frozen=True)
class InputHashes:
    """SHA-256 of every file and model directory that a run reads, by path, in the run's order."""

    data: dict[str, str]
    models: dict[str, str]


def hash_inputs(data_files: Iterable[Path], model_dirs: Iterable[Path]) -> InputHashes:
    """Read all inputs of a run once: those of a large model take minutes.

    Raises:
        DataError, ModelError: a file or directory is missing.
    """
    return InputHashes(
        {str(path): _data_hash(Path(path)) for path in data_files},
        {str(path): _model_hash(Path(path)) for path in model_dirs},
    )


def run_identity(config: Mapping[str, Any], inputs: InputHashes) -> str:
    """Hash over configuration, data, models and training code.

    Paths count only as the configuration spells them: the same files elsewhere give the same hash.
    Take out of ``config`` what may change between the parts of one run (where logs go, say).
    """
    parts = {
        "config": json.loads(json.dumps(config, sort_keys=True, default=str)),
        "data": list(inputs.data.values()),
        "models": list(inputs.models.values()),
        "code": code_hash("train"),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def prepare_run_dir(path: Path, identity: str) -> Literal["fresh", "resume"]:
    """Make ``path`` ready for the run with this identity; say how the run starts.

    The directory of another identity (changed configuration, data, models or code) is emptied of
    what a run writes (:data:`RUN_ENTRIES`); other files stay. The message goes to the log.

    Raises:
        CheckpointError: the directory cannot be written, or holds files that no run marked as its
            own (it could be a model's directory).
    """
    path = Path(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        marked = (path / IDENTITY_NAME).exists()
        if marked and read_identity(path) == identity:
            return "resume"
        present = [path / name for name in RUN_ENTRIES if (path / name).exists()]
        if present and not marked:
            raise CheckpointError(
                f"{path} holds {present[0].name} but is not marked as a run directory of refblend",
                "Choose an empty directory for trainer.default_local_dir",
            )
        if present:
            logger.warning(
                "%s holds a run with another configuration, data, models or code: it is removed "
                "and the run starts afresh",
                path,
            )
            # A kill during the removal must leave neither run's identity on a mixture.
            write_json(path / IDENTITY_NAME, {"identity": None})
            for target in present:
                if target.is_dir() and not target.is_symlink():
                    shutil.rmtree(target)
                else:
                    target.unlink()
        write_json(path / IDENTITY_NAME, {"identity": identity})
    except OSError as error:
        raise CheckpointError(
            f"the run directory {path} cannot be prepared ({error.strerror or error})",
            "Make it writable, or set trainer.default_local_dir to another directory",
        ) from error
    return "fresh"


@contextlib.contextmanager
def run_lock(path: Path) -> Iterator[None]:
    """Hold a run directory for this process; released also when the process is killed.

    Raises:
        CheckpointError: another process trains in the directory.
    """
    path = Path(path)
    path.mkdir(parents=True, exist_ok=True)
    with open(path / LOCK_NAME, "a", encoding="utf-8") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CheckpointError(
                f"another process is training in {path}",
                "Wait for it to end, or set trainer.default_local_dir to another directory",
            ) from error
        yield


def read_identity(path: Path) -> str | None:
    """Identity recorded in a run directory; None when it is absent, unreadable or being removed."""
    try:
        recorded = read_json(path / IDENTITY_NAME)["identity"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    return recorded if isinstance(recorded, str) else None


def _data_hash(path: Path) -> str:
    """Hash of a data file."""
    if not path.is_file():
        raise DataError(f"data file {path} is missing", "Prepare the data, or correct the path")
    return sha256_file(path)


def _model_hash(path: Path) -> str:
    """Hash of a model directory."""
    if not path.is_dir():
        raise ModelError(
            f"model directory {path} is missing", "Train or copy the model, or correct the path"
        )
    return sha256_tree(path)

"""What a run reads, as hashes of contents."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from refblend.errors import DataError, ModelError
from refblend.files import sha256_file, sha256_tree


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


def _data_hash(path: Path) -> str:
    """Hash of a data file."""
    if not path.is_file():
        raise DataError(f"data file {path} is missing", "Prepare the data first, or fix the path.")
    return sha256_file(path)


def _model_hash(path: Path) -> str:
    """Hash of a model directory."""
    if not path.is_dir():
        raise ModelError(
            f"model directory {path} is missing", "Train or copy the model first, or fix the path."
        )
    return sha256_tree(path)

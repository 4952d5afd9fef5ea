"""Faults of the machine, not bugs in refblend: a full or read-only disk, no memory, no package.

Libraries and Ray wrap the operating system's errors in their own texts, so both the error's number
and its text are checked.
"""

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

from refblend.errors import ConfigError, DiskError, RefblendError, ResourceError, first_line

_FULL = (errno.ENOSPC, errno.EDQUOT)
_FULL_TEXTS = ("no space left", "storagefull", "disk quota exceeded")
_READ_ONLY_TEXT = "read-only file system"
_FORBIDDEN = (errno.EACCES, errno.EPERM)
_MEMORY_TEXTS = (
    "out of memory",
    "can't allocate memory",
    "cannot allocate memory",
    "alloc_failed",  # CUBLAS_STATUS_ALLOC_FAILED
)

_EXTRAS = {
    "train": (
        "codecarbon", "datasets", "httpx2", "math_verify", "openai", "pynvml", "ray", "scipy",
        "tabulate", "tensorboard", "vllm", "xgrammar",
    ),
    "study": ("dvc", "jinja2", "seaborn", "snakemake"),
    "trl": ("trl",),
}  # fmt: skip
"""Extra of the wheel → modules that it brings."""
_MAKE_WRITABLE = "Make it writable, or choose another directory."


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether the host or a GPU ran out of memory; works without loading torch."""
    if isinstance(error, MemoryError):
        return True
    if any(kind.__name__ == "OutOfMemoryError" for kind in type(error).__mro__):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    # torch's host allocator raises the bare class.
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(part in text for part in _MEMORY_TEXTS)


def explain(error: Exception, directory: Path | None = None) -> RefblendError | None:
    """The user's error for a fault of the machine while writing there; None for others."""
    if isinstance(error, RefblendError):
        return None
    if isinstance(error, ModuleNotFoundError):
        module = (error.name or "").partition(".")[0]
        extra = next((name for name, modules in _EXTRAS.items() if module in modules), None)
        if extra is None:
            return None
        return ConfigError(
            f"this needs the package of the module {module}, which is not installed",
            f"Install refblend with its extra [{extra}].",
        )
    number, text = error.errno if isinstance(error, OSError) else None, str(error).lower()
    place = getattr(error, "filename", None) or directory or "the directory"
    if number in _FULL or any(part in text for part in _FULL_TEXTS):
        return DiskError(
            f"{place} cannot be written: the disk is full",
            "Free some space and call the same command again.",
        )
    if number == errno.EROFS or _READ_ONLY_TEXT in text:
        return DiskError(f"{place} cannot be used: the file system is read-only", _MAKE_WRITABLE)
    if number in _FORBIDDEN:
        why = getattr(error, "strerror", None) or "that is not permitted"
        return DiskError(f"{place} cannot be used: {why}", _MAKE_WRITABLE)
    if isinstance(error, (FileExistsError, IsADirectoryError, NotADirectoryError)):
        return DiskError(f"{place} cannot be used: {error.strerror}", "Name another path.")
    if is_out_of_memory(error):
        return ResourceError(
            f"memory ran out: {first_line(error)}",
            "Lower the batch, the lengths or kv_cache_memory_mb, or end other processes.",
        )
    return None


@contextlib.contextmanager
def explained(directory: Path) -> Iterator[None]:
    """Turn faults within the block, which writes there, into DiskError and ResourceError."""
    try:
        yield
    except Exception as error:
        fault = explain(error, directory)
        if fault is None:
            raise
        raise fault from error

"""Tables that commands write for their users: the name's ending chooses the format."""

import io
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from refblend.errors import DataError, DiskError
from refblend.files import atomic_path

if TYPE_CHECKING:
    import pandas as pd


# Values that hardly repeat are larger with a dictionary than without: a small limit ends it early.
_SMALL = {"compression": "zstd", "compression_level": 9, "dictionary_pagesize_limit": 2**12}
WRITERS: dict[str, tuple[str, dict[str, Any]]] = {
    ".csv": ("to_csv", {"index": False}),
    ".jsonl": (
        "to_json",
        {"orient": "records", "lines": True, "force_ascii": False, "double_precision": 15},
    ),
    ".parquet": ("to_parquet", {"index": False, **_SMALL}),
}
"""The end of a file's name → the method of a frame that writes it, and its options."""


def check_writable(path: Path) -> None:
    """Refuse (DiskError) a file that could not be written, before the work that it is to hold."""
    remedy = "Name a file in a directory of yours."
    if path.exists() and not path.is_file():
        kind = "a directory" if path.is_dir() else "no regular file"
        raise DiskError(f"{path} is {kind}", remedy)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise DiskError(f"{path} cannot be written ({error.strerror})", remedy) from None


def check_results(
    read: Iterable[Path | None], written: Iterable[Path | None], table: Path | None = None
) -> None:
    """:func:`check_writable` of results, none of which may replace what is read, or another.

    ``table`` is one of the results; DataError if its ending names no format.
    """
    if table is not None and table.suffix not in WRITERS:
        raise DataError(
            f"{table}: the ending {table.suffix or '(none)'} names no format for a table",
            f"Name a file with {', '.join(WRITERS)}.",
        )
    taken = {path.resolve(): "is read" for path in read if path is not None}
    for path in (path for path in (*written, table) if path is not None):
        if use := taken.get(path.resolve()):
            raise DiskError(f"{path} {use}, and would be overwritten", "Name another file.")
        taken[path.resolve()] = "is another result"
        check_writable(path)


def check_storable(path: Path | None, frame: "pd.DataFrame") -> None:
    """Refuse (DataError) rows that Parquet cannot hold, before columns are added to them."""
    if path is None or path.suffix != ".parquet":
        return
    try:
        frame.to_parquet(io.BytesIO(), index=False)
    except (ValueError, TypeError, OverflowError, NotImplementedError) as error:
        raise DataError(
            f"{path}: Parquet cannot hold the rows that were read ({error.args[-1]})",
            "Name a file with .csv or .jsonl.",
        ) from None


def write_table(path: Path, frame: "pd.DataFrame") -> None:
    """Write a table atomically, in the format given by its file suffix."""
    with atomic_path(path) as temporary:
        method, options = WRITERS[path.suffix]
        getattr(frame, method)(temporary, **options)

"""The property that all fuzz tests share.

A hostile input is either accepted, and then what was read is what was written, or refused with one
of our errors that names the file, says how to fix it and leaves nothing behind. Any other exception
fails the test. ``make fuzz`` draws more cases than the ordinary tests do.
"""

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import yaml

from refblend.errors import RefblendError
from refblend.identity import RunIdentity
from refblend.provenance import Source
from refblend.trainer.run_directory import LOCK_NAME

IDENTITY = RunIdentity(
    config={"algorithm": {"gamma": 1.0}, "trainer": {"test_freq": 5}},
    data={"train.parquet": "aa"},
    models={"actor": "bb"},
    prompts="cc",
    numerics={"train": 1},
    libraries={"torch": "2.13.0"},
    total_steps=3,
    fixed_length=False,
    segments=(Source(None, None, None),),
)
LONGEST_MESSAGE = 1200
"""Characters of an error message: a 10 MB value must not be repeated in it."""

T = TypeVar("T")


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A new empty directory for one case."""
    with tempfile.TemporaryDirectory(prefix="fuzz", ignore_cleanup_errors=True) as path:
        yield Path(path)


def yaml_file(path: Path, text: str | bytes | dict[str, Any]) -> Path:
    """A file with a text, bytes or a tree, as it is."""
    if isinstance(text, dict):
        text = yaml.safe_dump(text, allow_unicode=True, sort_keys=False)
    file = path / "hostile.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
    return file


def lines_of(content: bytes) -> list[str]:
    """Lines of a text file as Python reads them, without the blank ones."""
    text = content.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    return [line for line in text.split("\n") if line.strip()]


def files_below(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*")}


def content(root: Path) -> dict[str, bytes]:
    """Every file but the locks of runs."""
    files = (file for file in root.rglob("*") if file.is_file() and file.name != LOCK_NAME)
    return {file.relative_to(root).as_posix(): file.read_bytes() for file in files}


def check_refusal(error: RefblendError, *names: str) -> None:
    """An error of ours names what is wrong, says what to do, and is short."""
    message = str(error)
    assert error.remedy.strip(), message
    assert error.reason.strip(), message
    assert len(message) <= LONGEST_MESSAGE, f"{len(message)} characters: {message[:300]}"
    for name in names:
        assert name in message, f"{name} is not named: {message}"


def attempt(
    action: Callable[[], T], *names: str, where: Path | None = None
) -> tuple[bool, T | None]:
    """Run one case; (True, result) where the input is accepted, (False, None) where refused.

    Args:
        action: reads the hostile input.
        names: what a refusal must name.
        where: directory in which a refusal must leave everything as it was.
    """
    before = files_below(where) if where else set()
    try:
        result = action()
    except RefblendError as error:
        check_refusal(error, *names)
        if where:
            assert files_below(where) == before
        return False, None
    return True, result

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
from typer.testing import CliRunner

from refblend.errors import RefblendError

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


def check_cli(*arguments: str, where: Path) -> tuple[int, str]:
    """Run the command line on a hostile input: success, or one of our errors; nothing is left.

    Returns:
        Exit status and standard output.
    """
    from refblend.cli.main import app

    before = files_below(where)
    done = CliRunner().invoke(app, list(arguments))
    if isinstance(done.exception, RefblendError):
        check_refusal(done.exception)
    else:
        assert done.exit_code in (0, 2), done.exception
    if done.exit_code:
        assert files_below(where) == before
    return done.exit_code, done.stdout

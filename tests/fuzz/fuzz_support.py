"""What all fuzz tests share: number of cases, the property, the tally, the real command line.

The property: a hostile input is either accepted, and then what was read is what was written, or
refused with one of our errors that names the file, says how to fix it and leaves nothing behind.
Any other exception fails the test.
"""

import contextlib
import functools
import io
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

from hypothesis import HealthCheck, Phase, settings
from hypothesis.errors import StopTest, UnsatisfiedAssumption

from refblend.errors import RefblendError

SHORT = 2500
"""Cases over all targets in the ordinary tests; ``REFBLEND_FUZZ_CASES`` asks for another number."""
CASES = int(os.environ.get("REFBLEND_FUZZ_CASES", str(SHORT)))
LONGEST_MESSAGE = 1200
"""Characters of an error message: a 10 MB value must not be repeated in it."""

ALL_SHARES = 1.46
"""Sum of the shares of all tests."""

TALLY: dict[str, Counter[str]] = {}
"""Target → number of ``cases``, how many ``passed``, and were ``accepted`` or ``refused``."""
OUTCOMES: set[str] = set()
"""Of the reads of the present case: one input may have several readers."""

T = TypeVar("T")


def cases(target: str, share: float) -> Callable[[Any], Any]:
    """Let a hypothesis test draw its share of all cases, and count them for a target.

    The short version draws the same cases every time; the long one draws new ones.
    """
    chosen = settings(
        max_examples=max(5, round(CASES * share / ALL_SHARES)),
        deadline=None,
        derandomize=CASES <= SHORT,
        database=None,
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )

    def decorate(test: Any) -> Any:
        inner = test.hypothesis.inner_test

        @functools.wraps(inner)
        def counted(*arguments: Any, **named: Any) -> None:
            OUTCOMES.clear()
            tally = TALLY.setdefault(target, Counter())
            try:
                inner(*arguments, **named)
            except (StopTest, UnsatisfiedAssumption):  # hypothesis draws another one instead
                raise
            except BaseException:
                tally["cases"] += 1
                raise
            tally.update(("cases", "passed"))
            tally["refused" if "refused" in OUTCOMES else "accepted"] += 1
            tally["command_line"] += "command line" in OUTCOMES

        test.hypothesis.inner_test = counted
        return chosen(test)

    return decorate


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A new empty directory for one case; much faster than ``tmp_path`` for many cases."""
    path = Path(tempfile.mkdtemp(prefix="fuzz"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def lines_of(content: bytes) -> list[str]:
    """Lines of a text file as Python reads them, without the blank ones."""
    text = content.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    return [line for line in text.split("\n") if line.strip()]


def files_below(root: Path) -> set[str]:
    """Names of everything below a directory."""
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
        OUTCOMES.add("refused")
        return False, None
    OUTCOMES.add("accepted")
    return True, result


def run_cli(*arguments: str) -> tuple[int, str, str]:
    """The real entry point in this process: exit status, standard output and error.

    The streams behave as those of a process: UTF-8, strict for output, with escapes for errors.
    """
    from refblend.cli.main import run

    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    err = io.TextIOWrapper(
        io.BytesIO(), encoding="utf-8", errors="backslashreplace", write_through=True
    )
    status = 0
    with (
        mock.patch.object(sys, "argv", ["refblend", *arguments]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            run()
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1 if end.code else 0
    texts = [stream.buffer.getvalue().decode("utf-8") for stream in (out, err)]  # type: ignore[attr-defined]
    return status, texts[0], texts[1]


def check_cli(*arguments: str, where: Path | None = None) -> tuple[int, str]:
    """Run the command line on a hostile input: success, or status 2 and one readable line.

    Returns:
        Exit status and standard output.
    """
    before = files_below(where) if where else set()
    status, out, err = run_cli(*arguments)
    OUTCOMES.update(("command line", "accepted" if status == 0 else "refused"))
    assert "Traceback" not in out + err
    if status != 0:
        assert status == 2, err
        last = err.strip().splitlines()[-1]
        assert last.startswith("error: "), err
        if where:
            assert files_below(where) == before
    return status, out

"""Errors for users: their style, and several of them at once."""

import ast
import pickle
from pathlib import Path

import pytest

import refblend
from refblend.errors import (
    ConfigError,
    DataError,
    Problems,
    ProblemsError,
    RefblendError,
    first_line,
)

SOURCE = Path(refblend.__file__).parent
NAMES = {cls.__name__ for cls in RefblendError.__subclasses__()} | {"RefblendError"}


def last_text(node: ast.expr) -> str | None:
    """The end of a text that is written out; None where it is computed."""
    if isinstance(node, ast.JoinedStr):
        node = node.values[-1]
    return node.value if isinstance(node, ast.Constant) else None


def test_an_error_without_a_text_is_called_by_its_class() -> None:
    """As torch's of an empty file."""
    assert first_line(EOFError()) == "EOFError"
    assert first_line(ValueError("\n one \ntwo")) == "one "


def test_remedies_are_sentences() -> None:
    found = {
        f"{path.relative_to(SOURCE)}:{remedy.lineno}": last_text(remedy)
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in NAMES
        for remedy in node.args[1:2]
    }
    assert len(found) > 150
    unfinished = [
        where
        for where, text in found.items()
        if text is not None and text[-1:] not in (".", "?", "!")
    ]
    assert unfinished == []


def test_problems_are_collected_once_each_and_raised_together() -> None:
    problems = Problems()
    problems.settle()
    for error in (ConfigError("a", "Do x."), DataError("b", "Do y."), ConfigError("a", "Do x.")):
        with problems.noted():
            raise error
    with pytest.raises(ProblemsError, match=r"2 problems. \(1\) a. Do x. \(2\) b. Do y.") as caught:
        problems.settle()
    again = pickle.loads(pickle.dumps(caught.value))
    assert [type(problem) for problem in again.problems] == [ConfigError, DataError]
    with pytest.raises(KeyError), problems.noted():
        raise KeyError("a bug is no problem of the user's")


def test_a_single_problem_is_raised_as_it_is() -> None:
    problems = Problems()
    with problems.noted():
        raise ConfigError("a", "Do x.")
    with pytest.raises(ConfigError, match=r"a. Do x."):
        problems.settle()

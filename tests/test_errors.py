"""Errors for users, and several of them at once."""

import pickle

import pytest

from refblend.errors import ConfigError, DataError, Problems, ProblemsError, first_line


def test_an_error_without_a_text_is_called_by_its_class() -> None:
    """As torch's of an empty file."""
    assert first_line(EOFError()) == "EOFError"
    assert first_line(ValueError("\n one \ntwo")) == "one "


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

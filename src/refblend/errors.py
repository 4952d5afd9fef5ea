"""Errors meant for the user: one line that says what is wrong, where, and how to fix it.

Every error of this module ends the command without a traceback and with its exit status. Anything
else that escapes is a bug in refblend and is shown with its traceback.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from refblend.secret import mask

T = TypeVar("T")

BEGUN = 4
"""Exit status of a training whose workers or seeds failed: unlike others it was not refused."""


def first_line(error: BaseException) -> str:
    """The first line of an error's text, or its class where it has none."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


class RefblendError(Exception):
    """Base of every error that a user can fix.

    ``reason`` says what is wrong, naming the key, file or row; ``remedy`` what to do about it, an
    imperative sentence. Secrets in them are masked, since they may quote others' texts.
    """

    exit_status = 2

    def __init__(self, reason: str, remedy: str) -> None:
        self.reason, self.remedy = mask(reason), mask(remedy)
        super().__init__(f"{self.reason.removesuffix('.')}. {self.remedy}")

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        """Keep reason and remedy separate when Ray pickles the error across processes."""
        return type(self), (self.reason, self.remedy)


class ProblemsError(RefblendError):
    """Several errors at once."""

    def __init__(self, problems: list[RefblendError]) -> None:
        told = " ".join(f"({i}) {problem}" for i, problem in enumerate(problems, start=1))
        super().__init__(f"{len(problems)} problems", told)
        self.problems = problems

    def __reduce__(self) -> tuple[type, tuple[list[RefblendError]]]:  # type: ignore[override]
        """Keep the errors apart when Ray pickles them."""
        return type(self), (self.problems,)


class Problems:
    """Collects the errors of blocks that are run one after another."""

    def __init__(self) -> None:
        self.found: list[RefblendError] = []

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """A block whose error is kept for later."""
        try:
            yield
        except RefblendError as error:
            if str(error) not in map(str, self.found):
                self.found.append(error)

    def note(self, check: Callable[..., T], *arguments: Any) -> T | None:
        """What a check returns; None where it raises an error, which is kept for later."""
        with self.noted():
            return check(*arguments)
        return None

    def settle(self) -> None:
        """Raise what was found: the error itself, or one that holds all of them."""
        if self.found:
            raise self.found[0] if len(self.found) == 1 else ProblemsError(self.found)


class ConfigError(RefblendError):
    """A configuration file or an override is not acceptable."""


class DataError(RefblendError):
    """A data file is missing, corrupt, or has rows that cannot be used."""


class RewardError(RefblendError):
    """A reward function fails on a response."""


class ModelError(RefblendError):
    """A model or tokenizer directory cannot be used."""


class ScoringError(RefblendError):
    """The judge's templates, or the judge itself, cannot be used."""


class CheckpointError(RefblendError):
    """No usable checkpoint was found, or one could not be written."""


class DiskError(RefblendError):
    """The disk is full, or a file or directory may not be written."""


class ResourceError(RefblendError):
    """The machine or the Ray cluster cannot provide what the configuration requires."""


class WorkerError(RefblendError):
    """A worker process failed more often than the run allows, or missed a deadline."""

    exit_status = BEGUN


class TrainingError(RefblendError):
    """Training has produced numbers with which it cannot continue."""

    exit_status = BEGUN


class DriftError(RefblendError):
    """Accuracy on the sanity set has fallen too far (``trainer.drift_guard.stop``)."""


class StudyError(RefblendError):
    """A grid, a run directory or a result file of the study cannot be used."""

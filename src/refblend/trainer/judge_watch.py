"""A failing judge is reported: a warning with an example, and the guard that stops the run."""

from collections.abc import Callable, Sequence

from refblend.documents import show
from refblend.scoring.result import InvalidRateGuard, JudgeResult

WARN_ABOVE = 0.2
"""Share of invalid scores in a step above which the user is warned."""


class JudgeWatch:
    """Checks the judge's results of every step.

    Args:
        guard: stops the run when too many of the scores of the last steps are invalid.
        notify: tells the user.
    """

    def __init__(self, guard: InvalidRateGuard, notify: Callable[[str], None]) -> None:
        self._guard = guard
        self._notify = notify
        self._failing = False

    def update(self, step: int, results: Sequence[JudgeResult]) -> None:
        """Warn at the first step of a series with too many invalid scores, and ask the guard.

        Raises:
            ScoringError: too many of the scores were invalid.
        """
        invalid = [result for result in results if not result.valid]
        failing = len(invalid) > WARN_ABOVE * len(results)
        if failing and not self._failing:
            wrote = next((r for r in invalid if r.raw), invalid[0])
            what = f"e.g. it wrote {show(wrote.raw)}" if wrote.raw else "it wrote nothing"
            self._notify(
                f"step {step}: {len(invalid)} of {len(results)} scores of the judge are invalid "
                f"({wrote.path}); {what}"
            )
        self._failing = failing
        self._guard.update(results)

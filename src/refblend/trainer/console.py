"""The console view of a training run: one line per step, and the remaining time.

Each line begins with the run's label and is written in a single call, so that runs can share a log.
"""

import re
import sys
import time
from collections import deque
from collections.abc import Iterable, Mapping
from datetime import timedelta

from refblend.trainer.guards import SANITY_KEY
from refblend.trainer.tracking import Tracker

# Shown name, metric, format.
_COLUMNS = (
    ("reward", "critic/score/mean", "{:.3f}"),
    ("w", "actor/ref_quality/weight", "{:.3f}"),
    ("entropy", "actor/ref_quality/avg_entropy", "{:.3f}"),
    ("tok/s", "perf/throughput", "{:.0f}"),
)
_WINDOW = 8  # steps over which the pace for the ETA is averaged


def validation_accuracy(metrics: Mapping[str, float | None]) -> float | None:
    """The headline: greedy accuracy, mean over the validation sources, sanity set aside."""
    found = [metrics[name] for name in accuracies(metrics) if name != SANITY_KEY]
    measured = [value for value in found if value is not None]
    return sum(measured) / len(measured) if measured else None


def accuracies(names: Iterable[str]) -> dict[str, str]:
    """The greedy validation accuracies among the names of metrics, each with its data source."""
    pattern = re.compile("val-core/(.+)/acc/mean@1")
    return {name: found[1] for name in names if (found := pattern.fullmatch(name))}


class TrainingProgress(Tracker):
    """Step, reward, w, entropy, tokens/s and time left on standard error."""

    def __init__(self, total_steps: int, label: str, start_step: int) -> None:
        self._total = total_steps
        self._label = label
        # Step and time of the last few updates only, so that a slow start or an earlier validation
        # does not distort the remaining time.
        self._seen = deque([(start_step, time.monotonic())], maxlen=_WINDOW + 1)
        self._validation: float | None = None

    def log(self, step: int, metrics: Mapping[str, float | None]) -> None:
        """Show the metrics of a finished step; missing or null ones are left out."""
        if step > self._seen[-1][0]:
            self._seen.append((step, time.monotonic()))
        self._print(self.line(step, metrics))

    def message(self, text: str) -> None:
        """Print a separate line."""
        self._print(f"{self._label}: {text}")

    def line(self, step: int, metrics: Mapping[str, float | None]) -> str:
        """The line of a step."""
        width = len(str(self._total))
        parts = [f"{self._label}:", f"step {step:>{width}}/{self._total}"]
        for name, key, form in _COLUMNS:
            if (value := metrics.get(key)) is not None:
                parts.append(f"{name} {form.format(value)}")
        validation = validation_accuracy(metrics)
        if validation is not None:
            self._validation = validation
        if self._validation is not None:
            parts.append(f"val {self._validation:.3f}")
        if (remaining := self.seconds_left(step)) is not None:
            parts.append(f"ETA {timedelta(seconds=round(remaining))}")
        return "  ".join(parts)

    def seconds_left(self, step: int) -> float | None:
        """Estimated seconds to the last step, None before the first step is done."""
        (first, begun), (last, ended) = self._seen[0], self._seen[-1]
        if last == first:
            return None
        return max(0, self._total - step) * (ended - begun) / (last - first)

    def _print(self, line: str) -> None:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()

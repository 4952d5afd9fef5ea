"""The record of one training step: its metrics, and the seconds of its stages."""

import contextlib
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

INCIDENTS = ("oom", "nonfinite", "overlength", "drift")
"""Counted by the trainer itself, so that they are there in every step."""


def update_notices(role: str, metrics: Mapping[str, float]) -> list[str]:
    """The user's messages about an update with problems, see :meth:`StepRecord.add_update`."""
    notices = []
    if metrics["oom"]:
        notices.append(
            f"memory ran out in the {role}'s update; it was repeated with half the tokens in a "
            f"micro-batch ({metrics['oom']:g} times halved)"
        )
    if not math.isfinite(metrics["grad_norm"]):
        notices.append(f"the {role}'s gradient is not finite; the update is skipped")
    return notices


@dataclass(frozen=True)
class Span:
    """A stage: when it began on the monotonic clock, and how long it took, in seconds."""

    name: str
    start: float
    seconds: float


@dataclass
class StepRecord:
    """Filled by the stages of a step in their order."""

    metrics: dict[str, float] = field(
        default_factory=lambda: {f"incidents/{name}": 0.0 for name in INCIDENTS}
    )
    spans: list[Span] = field(default_factory=list)
    """The stages; those that run side by side overlap."""

    @property
    def seconds(self) -> dict[str, float]:
        """Wall time of each stage."""
        return {span.name: span.seconds for span in self.spans}

    @contextlib.contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Measure the block as the stage ``name``."""
        start = time.monotonic()
        yield
        self.spans.append(Span(name, start, time.monotonic() - start))

    def add(self, metrics: Mapping[str, float]) -> None:
        """Add metrics under their full names."""
        self.metrics |= metrics

    def add_update(self, role: str, metrics: Mapping[str, float]) -> None:
        """Add the metrics of an actor's or critic's update, and incidents under their own names.

        A ``grad_norm`` that is not finite is an update that was skipped. Memory, under its full
        name, is the larger of the two roles'.
        """
        lost = 0.0 if math.isfinite(metrics["grad_norm"]) else 1.0
        for name, count in (("oom", metrics["oom"]), ("nonfinite", lost)):
            self.metrics[f"incidents/{name}"] += count
        for name, value in metrics.items():
            if name.startswith("perf/"):
                self.metrics[name] = max(value, self.metrics.get(name, 0.0))
            elif name != "oom":
                self.metrics[f"{role}/{name}"] = value

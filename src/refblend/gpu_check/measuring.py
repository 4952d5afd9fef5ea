"""The report of a check, and what it measures: times, the peak, the largest size that fits."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Goal(NamedTuple):
    """A share that is wanted."""

    share: float
    unit: str
    worst: Callable[[float, float], float]
    """Of two shares: ``min`` where more is better, ``max`` where less is."""

    def verdict(self, found: float | None) -> str:
        """Whether a share meets the goal; None: it was not measured."""
        if found is None:
            return "not measured"
        return "met" if self.worst(self.share, found) == self.share else "missed"


GOALS = {
    "log-prob pass": Goal(0.35, "of the peak, or more", min),
    "update": Goal(0.35, "of the peak, or more", min),
    "weight push": Goal(0.02, "of a step, or less", max),
    "judge stage": Goal(0.9, "of its time in bare LLM.generate, or more", min),
}
NOT_MEASURED = (
    "step within 1.15 times its bare parts",
    "1.5 times the tokens per second of TRL's GRPOTrainer",
)


@dataclass
class Report:
    """What was found, in the order in which it was found."""

    device: str
    rows: list[tuple[str, str]] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    shares: dict[str, float] = field(default_factory=dict)
    """By what reached them, for :data:`GOALS`."""

    def add(self, what: str, found: str) -> None:
        """A row, also on the console."""
        self.rows.append((what, found))
        print(f"{what}: {found}", flush=True)

    def reached(self, what: str, share: float) -> None:
        """A share for a goal; of several the worst."""
        self.shares[what] = GOALS[what].worst(share, self.shares.get(what, share))

    @contextmanager
    def stage(self, what: str) -> Iterator[None]:
        """A stage whose failure is reported, and does not stop the next one."""
        begin = time.perf_counter()
        try:
            yield
        except Exception as error:  # a defect of any kind is what the check is for
            self.failures.append(f"{what}: {type(error).__name__}: {str(error)[-600:]}")
            print(f"FAILED {self.failures[-1]}", flush=True)
        else:
            self.add(what, f"passed in {time.perf_counter() - begin:.1f} s")

    def text(self) -> str:
        """The report as Markdown."""
        lines = ["# GPU check", "", f"{self.device}. Made by `python -m refblend.gpu_check`.", ""]
        lines += ["| what | found |", "|:--|:--|", *(f"| {a} | {b} |" for a, b in self.rows), ""]
        for what, goal in GOALS.items():
            verdict = goal.verdict(self.shares.get(what))
            lines += [f"Goal, {what} at {goal.share:.0%} {goal.unit}: {verdict}.", ""]
        lines += [f"Goal, {what}: not measured.\n" for what in NOT_MEASURED]
        lines += [f"Left out: {'; '.join(self.left_out) or 'nothing'}.", ""]
        lines += [f"**Failed:** {failure}" for failure in self.failures] or ["No stage failed."]
        return "\n".join(lines) + "\n"


def seconds(work: Callable[[], Any], device: str, repeats: int = 3) -> float:
    """Wall time of the fastest of several calls, after one that is not counted."""
    import torch

    def finished() -> float:
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    work()
    taken = []
    for _ in range(repeats):
        begin = finished()
        work()
        taken.append(finished() - begin)
    return min(taken)


def matmul_peak(device: str) -> float:
    """Operations a second of a large matrix product: bfloat16 on a GPU, float32 on the CPU."""
    import torch

    size, dtype = (8192, torch.bfloat16) if device == "cuda" else (1024, torch.float32)
    left, right = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    return 2 * size**3 / seconds(lambda: left @ right, device, repeats=20)


def largest_fitting(fits: Callable[[int], bool], start: int, limit: int) -> int:
    """The largest size up to ``limit`` that fits, to an eighth: doubling, then halving the gap.

    Returns:
        0 if not even ``start`` fits.
    """
    good, bad = 0, start
    while bad <= limit and fits(bad):
        good, bad = bad, 2 * bad
    if bad > limit:
        return good
    while good and bad - good > max(1, good // 8):
        middle = (good + bad) // 2
        good, bad = (middle, bad) if fits(middle) else (good, middle)
    return good

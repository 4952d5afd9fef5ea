"""The report of a check, and what it measures: times, and the peak."""

import time
import timeit
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass
class Report:
    """What was found, in the order in which it was found."""

    device: str
    rows: list[tuple[str, str]] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def add(self, what: str, found: str) -> None:
        """A row, also on the console."""
        self.rows.append((what, found))
        print(f"{what}: {found}", flush=True)

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
        lines += [f"Left out: {'; '.join(self.left_out) or 'nothing'}.", ""]
        lines += [f"**Failed:** {failure}" for failure in self.failures] or ["No stage failed."]
        return "\n".join(lines) + "\n"


def seconds(work: Callable[[], Any], device: str, repeats: int = 3) -> float:
    """Wall time of the fastest of several calls, after one that is not counted."""

    def finished() -> None:
        work()
        if device == "cuda":
            torch.cuda.synchronize()

    finished()
    return min(timeit.repeat(finished, number=1, repeat=repeats))


def matmul_peak(device: str) -> float:
    """Operations a second of a large matrix product: bfloat16 on a GPU, float32 on the CPU."""
    size, dtype = (8192, torch.bfloat16) if device == "cuda" else (1024, torch.float32)
    left, right = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    return 2 * size**3 / seconds(lambda: left @ right, device, repeats=20)

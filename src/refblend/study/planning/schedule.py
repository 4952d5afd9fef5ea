"""Runs on equal slots, longest first, each on the slot that becomes free first (LPT).

Graham 1969, "Bounds on multiprocessing timing anomalies": at most 4/3 − 1/(3N) times the shortest
makespan.
"""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

from refblend.errors import StudyError


@dataclass(frozen=True)
class Placement:
    """A run on one of the slots; seconds from the start of the study."""

    run: int
    place: int
    start: float
    end: float


def parallel_places(slots: int, gpus_per_run: int | None) -> int:
    """Number of concurrent runs: one per core, or one on every ``gpus_per_run`` GPUs.

    Raises:
        StudyError: not even one fits.
    """
    if slots < 1 or (gpus_per_run is not None and gpus_per_run < 1):
        raise StudyError("--slots and --gpus-per-run must be at least 1", "Correct the value.")
    places = slots // (gpus_per_run or 1)
    if places == 0:
        raise StudyError(
            f"a run needs {gpus_per_run} GPUs and there are {slots}",
            "Raise --slots or lower --gpus-per-run.",
        )
    return places


def schedule_longest_first(seconds: Sequence[float], places: int) -> list[Placement]:
    """Longest-processing-time schedule of runs of so many seconds on equal slots.

    One placement per run, in the order of ``seconds``; equal runs keep that order.

    >>> [(p.place, p.start, p.end) for p in schedule_longest_first([2.0, 3.0, 2.0], 2)]
    [(1, 0.0, 2.0), (0, 0.0, 3.0), (1, 2.0, 4.0)]
    """
    free = [(0.0, place) for place in range(places)]
    placements: dict[int, Placement] = {}
    for run in sorted(range(len(seconds)), key=lambda i: -seconds[i]):
        start, place = heapq.heappop(free)
        placements[run] = Placement(run, place, start, start + seconds[run])
        heapq.heappush(free, (placements[run].end, place))
    return [placements[run] for run in range(len(seconds))]


def makespan(placements: Sequence[Placement]) -> float:
    """Seconds until the last run ends."""
    return max(placement.end for placement in placements)


def busiest_memory(placements: Sequence[Placement], memory: Sequence[float]) -> float:
    """Largest sum of the memory of runs at the same time, in the unit of ``memory``.

    Every run counts with its peak from its start to its end.
    """
    return max(
        math.fsum(memory[p.run] for p in placements if p.start <= moment.start < p.end)
        for moment in placements
    )

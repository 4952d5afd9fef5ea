"""The cost of a study: run hours, makespan, memory and energy for N concurrent runs.

Runs are scheduled on equal slots, longest first, each on the slot that becomes free first (LPT;
Graham 1969, "Bounds on multiprocessing timing anomalies": at most 4/3 − 1/(3N) times the shortest
makespan).
"""

import heapq
import json
import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from refblend.errors import StudyError
from refblend.study.design.grid import resolve_arm, unique_runs
from refblend.study.planning.costs import SECONDS_PER_HOUR, Cost


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


@dataclass(frozen=True)
class ArmPlan:
    """The runs of one arm, which all cost the same."""

    arm: str
    runs: int
    steps: int
    measured_runs: int
    """Number of finished runs behind the measured costs."""
    costs: dict[str, Cost]
    hours_per_run: float


@dataclass(frozen=True)
class StudyPlan:
    """Totals of a study; see :func:`plan_study`."""

    slots: int
    """Cores or GPUs."""
    gpus_per_run: int | None
    """Null on the CPU."""
    places: int
    """Concurrent runs."""
    runs: int
    run_hours: float
    gpu_hours: float | None
    makespan_hours: float
    shortest_hours: float
    """Lower bound of any schedule: the longest run, or all hours spread evenly."""
    busy_share: float
    """Share of the slots' time until the end in which they train."""
    peak_memory_gb: float
    """GiB at the peak."""
    energy_kwh: float | None
    """Null where the power of an arm is unknown."""
    kg_co2e: float | None
    """Null where the power or the carbon intensity of an arm is unknown."""
    arms: list[ArmPlan]
    schedule: list[dict[str, str | int | float]]
    """Every run by its start: arm, seed, place, and start and end in hours."""


def check_gpus(scale: str, gpus_per_run: int | None) -> None:
    """GPUs per run are stated at scale gpu, and only there.

    Raises:
        StudyError: they are missing there, or stated elsewhere.
    """
    if (scale == "gpu") != (gpus_per_run is not None):
        raise StudyError(
            f"--gpus-per-run is {'missing' if scale == 'gpu' else 'given'} at scale {scale}",
            "Give it at scale gpu, and only there; `refblend check` prints a run's GPUs.",
        )


def planned_steps(
    grid: pd.DataFrame, scale: str, params: str | Path = "params", given: int | None = None
) -> dict[str, int]:
    """Training steps of every arm: given, or ``trainer.total_training_steps``.

    Raises:
        StudyError: an arm's number of steps depends on its data and is not given.
        ConfigError: an arm's configuration is not acceptable.
    """
    steps: dict[str, int] = {}
    for row in unique_runs(grid).drop_duplicates("arm").itertuples():
        config = resolve_arm(json.loads(row.overrides), scale, params)
        planned = given or config.trainer.total_training_steps
        if planned is None:
            raise StudyError(
                f"arm {row.arm}: trainer.total_training_steps of scale {scale} is null, so the "
                f"steps follow from the number of prompts ({config.trainer.total_epochs} epochs "
                f"in batches of {config.data.train_batch_size})",
                "Give them with --steps; `refblend check` prints them.",
            )
        steps[str(row.arm)] = planned
    return steps


def plan_study(
    grid: pd.DataFrame,
    steps: Mapping[str, int],
    costs: Mapping[str, Mapping[str, Cost]],
    slots: int,
    gpus_per_run: int | None = None,
    measured_runs: Mapping[str, int] | None = None,
) -> StudyPlan:
    """Schedule every run of a grid and add up what it costs; shared runs count once.

    ``slots`` are cores, one per run, or GPUs, of which a run needs ``gpus_per_run`` (None on the
    CPU). ``steps``, ``costs`` and ``measured_runs`` are by arm.

    Raises:
        StudyError: not even one run fits.
    """
    places, measured = parallel_places(slots, gpus_per_run), measured_runs or {}
    runs = unique_runs(grid)
    arms = [str(arm) for arm in runs["arm"]]
    seconds = {
        arm: costs[arm]["startup_seconds"].value + steps[arm] * costs[arm]["step_seconds"].value
        for arm in dict.fromkeys(arms)
    }
    durations = [seconds[arm] for arm in arms]
    placements = schedule_longest_first(durations, places)
    total, end = math.fsum(durations), makespan(placements)
    energy_kwh, kg_co2e = _energy(arms, seconds, costs)
    return StudyPlan(
        slots=slots,
        gpus_per_run=gpus_per_run,
        places=places,
        runs=len(runs),
        run_hours=total / SECONDS_PER_HOUR,
        gpu_hours=None if gpus_per_run is None else total * gpus_per_run / SECONDS_PER_HOUR,
        makespan_hours=end / SECONDS_PER_HOUR,
        shortest_hours=max(total / places, *durations) / SECONDS_PER_HOUR,
        busy_share=total / (places * end),
        peak_memory_gb=busiest_memory(placements, [costs[a]["memory_gb"].value for a in arms]),
        energy_kwh=energy_kwh,
        kg_co2e=kg_co2e,
        arms=[
            ArmPlan(
                arm,
                arms.count(arm),
                steps[arm],
                measured.get(arm, 0),
                dict(costs[arm]),
                duration / SECONDS_PER_HOUR,
            )
            for arm, duration in seconds.items()
        ],
        schedule=_by_start(placements, runs),
    )


def _energy(
    arms: Sequence[str], seconds: Mapping[str, float], costs: Mapping[str, Mapping[str, Cost]]
) -> tuple[float | None, float | None]:
    """kWh and kg CO2e of all runs, per arm; null if an arm's costs are unknown."""
    if any("watts" not in costs[arm] for arm in arms):
        return None, None
    energy = [seconds[arm] / SECONDS_PER_HOUR * costs[arm]["watts"].value / 1000 for arm in arms]
    intensity = [costs[arm].get("kg_co2e_per_kwh") for arm in arms]
    known = [cost.value for cost in intensity if cost is not None]
    emitted = math.fsum(map(operator.mul, energy, known)) if len(known) == len(arms) else None
    return math.fsum(energy), emitted


def _by_start(
    placements: Sequence[Placement], runs: pd.DataFrame
) -> list[dict[str, str | int | float]]:
    """The schedule for readers: one record per run, by start and place, times in hours."""
    return [
        {
            "arm": str(runs["arm"].iloc[p.run]),
            "seed": str(runs["seed"].iloc[p.run]),
            "place": p.place,
            "start_hours": p.start / SECONDS_PER_HOUR,
            "end_hours": p.end / SECONDS_PER_HOUR,
        }
        for p in sorted(placements, key=lambda p: (p.start, p.place))
    ]

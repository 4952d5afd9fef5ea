"""What a study will cost: run hours, makespan, memory and energy for N runs side by side."""

import json
import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from refblend.errors import StudyError
from refblend.study.design.grid import resolve_arm, unique_runs
from refblend.study.planning.costs import SECONDS_AN_HOUR, Figure
from refblend.study.planning.schedule import (
    busiest_memory,
    makespan,
    parallel_places,
    schedule_longest_first,
)


@dataclass(frozen=True)
class ArmPlan:
    """The runs of one arm, which cost the same."""

    arm: str
    runs: int
    steps: int
    measured_runs: int
    """Finished runs behind the measured figures."""
    costs: dict[str, Figure]
    hours_a_run: float


@dataclass(frozen=True)
class StudyPlan:
    """Totals of a study; see :func:`plan_study`."""

    slots: int
    """Cores or GPUs."""
    gpus_per_run: int | None
    """Null on the CPU."""
    places: int
    """Runs side by side."""
    runs: int
    run_hours: float
    gpu_hours: float | None
    makespan_hours: float
    shortest_hours: float
    """No schedule is shorter: the longest run, or all hours spread evenly."""
    busy_share: float
    """Share of the places' time until the end in which they train."""
    peak_memory_gb: float
    """GiB at the busiest moment."""
    energy_kwh: float
    kg_co2e: float | None
    """Null where the carbon intensity of an arm is unknown."""
    arms: list[ArmPlan]
    schedule: list[dict[str, str | int | float]]
    """Every run by its start: arm, seed, place, and start and end in hours."""


def planned_steps(
    grid: pd.DataFrame, scale: str, params: str | Path = "params", given: int | None = None
) -> dict[str, int]:
    """Training steps of every arm: given, or ``trainer.total_training_steps``.

    Raises:
        StudyError: an arm's length follows from its data and is not given.
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
    costs: Mapping[str, Mapping[str, Figure]],
    slots: int,
    gpus_per_run: int | None = None,
    measured_runs: Mapping[str, int] | None = None,
) -> StudyPlan:
    """Schedule every run of a grid and add up what it costs.

    Args:
        grid: as :func:`refblend.study.design.grid.build_grid` derives it; shared runs count once.
        steps: training steps of every arm.
        costs: of every arm, as :func:`arm_costs` gives them.
        slots: cores, one a run, or GPUs.
        gpus_per_run: GPUs that a run takes; null on the CPU.
        measured_runs: finished runs behind the measured costs of an arm.

    Raises:
        StudyError: not even one run fits.
    """
    places = parallel_places(slots, gpus_per_run)
    runs = unique_runs(grid)
    arms = [str(arm) for arm in runs["arm"]]
    seconds = {
        arm: costs[arm]["startup_seconds"].value + steps[arm] * costs[arm]["step_seconds"].value
        for arm in dict.fromkeys(arms)
    }
    durations = [seconds[arm] for arm in arms]
    placements = schedule_longest_first(durations, places)
    total, end = math.fsum(durations), makespan(placements)
    energy = [seconds[arm] / SECONDS_AN_HOUR * costs[arm]["watts"].value / 1000 for arm in arms]
    intensity = [costs[arm].get("kg_co2e_per_kwh") for arm in arms]
    known = [figure.value for figure in intensity if figure is not None]
    emitted = math.fsum(map(operator.mul, energy, known)) if len(known) == len(arms) else None
    return StudyPlan(
        slots=slots,
        gpus_per_run=gpus_per_run,
        places=places,
        runs=len(runs),
        run_hours=total / SECONDS_AN_HOUR,
        gpu_hours=None if gpus_per_run is None else total * gpus_per_run / SECONDS_AN_HOUR,
        makespan_hours=end / SECONDS_AN_HOUR,
        shortest_hours=max(total / places, *durations) / SECONDS_AN_HOUR,
        busy_share=total / (places * end),
        peak_memory_gb=busiest_memory(placements, [costs[a]["memory_gb"].value for a in arms]),
        energy_kwh=math.fsum(energy),
        kg_co2e=emitted,
        arms=[
            ArmPlan(
                arm=arm,
                runs=arms.count(arm),
                steps=steps[arm],
                measured_runs=(measured_runs or {}).get(arm, 0),
                costs=dict(costs[arm]),
                hours_a_run=seconds[arm] / SECONDS_AN_HOUR,
            )
            for arm in seconds
        ],
        schedule=[
            {
                "arm": arms[p.run],
                "seed": str(runs["seed"].iloc[p.run]),
                "place": p.place,
                "start_hours": p.start / SECONDS_AN_HOUR,
                "end_hours": p.end / SECONDS_AN_HOUR,
            }
            for p in sorted(placements, key=lambda p: (p.start, p.place))
        ],
    )

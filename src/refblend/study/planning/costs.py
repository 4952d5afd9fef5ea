"""``refblend plan``: what a study costs, from costs that were measured or given, never assumed.

A run lasts ``startup_seconds + steps × step_seconds``, where start-up is all of a measured run's
wall time outside its steps: loading, validation, checkpoints, and shutdown. Measured costs hold for
the machine and the number of concurrent runs with which they were measured.
"""

import heapq
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pandas as pd

from refblend.errors import Problems, StudyError
from refblend.study.design.grid import resolve_arm, unique_runs
from refblend.study.planning.tables import read_table

SECONDS_PER_HOUR = 3600.0
RESOURCE_COLUMNS = (
    "arm",
    "seed",
    "status",
    "steps",
    "wall_time_s",
    "energy_kwh",
    "kg_co2e",
    "resumed",
    "seconds_a_step",
    "peak_memory_gb",
)
"""Columns read from a report's table ``resources``."""
NEEDED = ("step_seconds", "startup_seconds", "memory_gb")
"""Costs that a plan needs. Without ``watts`` and ``kg_co2e_per_kwh`` it has no energy."""
REMEDY = "Name a report's tables/resources.csv."
MAY_BE_ZERO = ("startup_seconds", "kg_co2e_per_kwh")


@dataclass(frozen=True)
class Cost:
    """A cost of an arm's run, and where it comes from."""

    value: float
    origin: Literal["measured", "given"]


def read_resources(paths: Sequence[Path]) -> pd.DataFrame:
    """Runs that count, of the resources tables of finished studies.

    An arm's runs come from the last table that has any, and from it alone: another one may have
    been measured on another machine.

    Returns:
        One row per run that finished without a resume: :data:`RESOURCE_COLUMNS`.

    Raises:
        StudyError, ProblemsError: tables that cannot be read or lack a column.
    """
    problems, found = Problems(), dict[str, pd.DataFrame]()
    for path in paths:
        with problems.noted():
            runs = counted_runs(read_table(path, RESOURCE_COLUMNS, REMEDY))
            found |= {str(arm): part for arm, part in runs.groupby("arm", sort=False)}
    problems.settle()
    frames = list(found.values()) or [pd.DataFrame(columns=list(RESOURCE_COLUMNS))]
    return pd.concat(frames, ignore_index=True)[list(RESOURCE_COLUMNS)]


def counted_runs(resources: pd.DataFrame) -> pd.DataFrame:
    """Runs that finished without a resume: resumed ones started up more than once."""
    return resources[(resources["status"] == "finished") & (resources["resumed"] == 0)]


def measured_costs(resources: pd.DataFrame) -> dict[str, tuple[int, dict[str, float]]]:
    """Costs of each arm, and the number of runs that they were measured in.

    Means over the runs; memory is their maximum. What was not measured (energy may be switched
    off) is left out. ``resources`` has the runs of :func:`counted_runs`.

    Raises:
        StudyError: the steps of a run take longer than the run.
    """
    found: dict[str, tuple[int, dict[str, float]]] = {}
    for arm, runs in resources.groupby("arm", sort=False):
        # Seeds of one job share the start-up, so a single run may show none, or less than 0.
        startup = (runs["wall_time_s"] - runs["steps"] * runs["seconds_a_step"]).mean()
        if startup < 0:
            raise StudyError(
                f"arm {arm}: steps × seconds per step exceeds the wall time of its runs",
                "Collect the runs again, or leave their table out.",
            )
        hours = runs["wall_time_s"].sum() / SECONDS_PER_HOUR
        # A sum over runs counts only if every run was measured.
        energy = runs["energy_kwh"].sum(skipna=False)
        costs = {
            "step_seconds": runs["seconds_a_step"].mean(),
            "startup_seconds": startup,
            "memory_gb": runs["peak_memory_gb"].max(),
            "watts": energy / hours * 1000,
            "kg_co2e_per_kwh": runs["kg_co2e"].sum(skipna=False) / energy,
        }
        known = {name: float(value) for name, value in costs.items() if math.isfinite(value)}
        found[str(arm)] = len(runs), known
    return found


def arm_costs(
    arms: Sequence[str],
    measured: Mapping[str, tuple[int, Mapping[str, float]]],
    given: Mapping[str, float],
) -> dict[str, dict[str, Cost]]:
    """Every arm's costs: measured if there are finished runs, given otherwise.

    Raises:
        StudyError: a given cost is not positive and finite, or was measured for every arm; a
            needed one is neither measured nor given (names the options).
    """
    if wrong := [
        f"{option(name)}={value:g}"
        for name, value in given.items()
        if not math.isfinite(value) or value < 0 or (value == 0 and name not in MAY_BE_ZERO)
    ]:
        raise StudyError(f"{', '.join(wrong)}: no positive number", "Correct every value.")
    costs = {}
    for arm in arms:
        known = measured[arm][1] if arm in measured else {}
        costs[arm] = {name: Cost(value, "given") for name, value in given.items()}
        costs[arm] |= {name: Cost(value, "measured") for name, value in known.items()}
    if lacking := [n for n in NEEDED if not all(n in costs[arm] for arm in arms)]:
        without = [arm for arm in arms if not set(lacking) <= costs[arm].keys()]
        raise StudyError(
            f"no finished run gives {', '.join(lacking)} of arm {', '.join(without)}",
            f"Give measured values with {', '.join(map(option, lacking))}, or name the "
            "resources tables of finished runs with --resources.",
        )
    if unused := [n for n in given if all(costs[arm][n].origin == "measured" for arm in arms)]:
        raise StudyError(
            f"{', '.join(map(option, unused))}: already measured in finished runs of every arm",
            "Drop the option, or ignore the measurements with --no-measured.",
        )
    return costs


def option(name: str) -> str:
    """The command line's option for a cost: ``--memory-gb``."""
    return f"--{name.replace('_', '-')}"


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
    """Totals of a study; null where a cost is unknown or does not apply."""

    places: int
    """Concurrent runs."""
    runs: int
    run_hours: float
    gpu_hours: float | None
    makespan_hours: float
    shortest_hours: float
    """Lower bound of any schedule: the longest run, or all hours spread evenly."""
    peak_memory_gb: float
    """GiB if the largest runs are at their peaks at the same time."""
    energy_kwh: float | None
    kg_co2e: float | None
    arms: list[ArmPlan]


def parallel_places(slots: int, gpus_per_run: int | None) -> int:
    """Number of concurrent runs: one per core, or one on every ``gpus_per_run`` GPUs.

    Raises:
        StudyError: not even one fits.
    """
    places = slots // (gpus_per_run or 1)
    if places < 1:
        raise StudyError(
            f"a run needs {gpus_per_run or 1} of --slots and there are {slots}",
            "Raise --slots or lower --gpus-per-run.",
        )
    return places


def makespan(seconds: Sequence[float], places: int) -> float:
    """When the last run ends, longest first on the place that is free first.

    LPT; Graham 1969, "Bounds on multiprocessing timing anomalies": at most 4/3 − 1/(3N) times the
    shortest one.

    >>> makespan([2.0, 3.0, 2.0], 2)
    4.0
    """
    ends = [0.0] * places
    for duration in sorted(seconds, reverse=True):
        heapq.heappush(ends, heapq.heappop(ends) + duration)
    return max(ends)


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
    places = parallel_places(slots, gpus_per_run)
    names = [str(arm) for arm in unique_runs(grid)["arm"]]
    seconds = {
        arm: costs[arm]["startup_seconds"].value + steps[arm] * costs[arm]["step_seconds"].value
        for arm in dict.fromkeys(names)
    }
    durations = [seconds[arm] for arm in names]
    memory = sorted(costs[arm]["memory_gb"].value for arm in names)
    hours = math.fsum(durations) / SECONDS_PER_HOUR
    arms = [
        ArmPlan(
            arm=arm,
            runs=names.count(arm),
            steps=steps[arm],
            measured_runs=(measured_runs or {}).get(arm, 0),
            costs=dict(costs[arm]),
            hours_per_run=duration / SECONDS_PER_HOUR,
        )
        for arm, duration in seconds.items()
    ]
    return StudyPlan(
        places=places,
        runs=len(names),
        run_hours=hours,
        gpu_hours=None if gpus_per_run is None else hours * gpus_per_run,
        makespan_hours=makespan(durations, places) / SECONDS_PER_HOUR,
        shortest_hours=max(hours / places, max(durations) / SECONDS_PER_HOUR),
        peak_memory_gb=math.fsum(memory[-places:]),
        energy_kwh=_total(names, seconds, costs, ("watts",)),
        kg_co2e=_total(names, seconds, costs, ("watts", "kg_co2e_per_kwh")),
        arms=arms,
    )


def _total(
    names: Sequence[str],
    seconds: Mapping[str, float],
    costs: Mapping[str, Mapping[str, Cost]],
    factors: Sequence[str],
) -> float | None:
    """Sum over the runs of kilohours times costs: kWh, or kg CO2e; None if a cost is unknown."""
    if not all(factor in costs[arm] for arm in names for factor in factors):
        return None
    return math.fsum(
        seconds[arm] / SECONDS_PER_HOUR * math.prod(costs[arm][f].value for f in factors) / 1000
        for arm in names
    )

"""What a study will cost: run hours, makespan, memory and energy for N runs side by side.

Costs are *measured* (the ``resources`` tables of finished runs) or *given* by the user; nothing is
assumed. A run's duration is ``startup_seconds + steps × step_seconds``, where start-up is all of a
measured run's wall time that is no step: coming up, validation, checkpoints, and the end.

Runs are placed longest first, each on the place that is free earliest (LPT; Graham 1969, "Bounds
on multiprocessing timing anomalies"): at most 4/3 − 1/(3N) times the shortest makespan. Measured
costs hold for the machine, and for as many runs side by side, as they were measured with.
"""

import heapq
import json
import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pandas as pd
from pydantic import ValidationError

from refblend.config.base import NonNegativeFloat, PositiveFloat, Section
from refblend.errors import StudyError
from refblend.study.grid import resolve_arm, unique_runs

SECONDS_AN_HOUR = 3600.0
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
"""Columns that are read of :func:`refblend.study.tables.resources`."""


class GivenCosts(Section):
    """Costs that the user states where no run was measured; null: not stated."""

    step_seconds: PositiveFloat | None = None
    """Seconds of a training step."""
    startup_seconds: NonNegativeFloat | None = None
    """Seconds of a run that are no training step."""
    memory_gb: PositiveFloat | None = None
    """Peak memory of a run, GiB."""
    watts: PositiveFloat | None = None
    """Mean power of a run, W."""
    kg_co2e_per_kwh: NonNegativeFloat | None = None
    """Carbon intensity of the electricity; without one there is no figure of emissions."""


NEEDED = ("step_seconds", "startup_seconds", "memory_gb", "watts")
"""Costs without which there is no plan; the carbon intensity may stay unknown."""


@dataclass(frozen=True)
class Figure:
    """A cost, its unit as in :class:`GivenCosts`, and where it comes from."""

    value: float
    origin: Literal["measured", "given"]


@dataclass(frozen=True)
class Placement:
    """A run on one of the places; seconds from the start of the study."""

    run: int
    place: int
    start: float
    end: float


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


def given_costs(**values: float | None) -> GivenCosts:
    """Check what the user states.

    Raises:
        StudyError: a value is negative, zero where that makes no sense, or not finite.
    """
    try:
        return GivenCosts.model_validate(values)
    except ValidationError as error:
        problem = error.errors()[0]
        raise StudyError(
            f"{option(str(problem['loc'][0]))}={problem['input']}: {problem['msg']}",
            "Correct the value.",
        ) from None


def option(name: str) -> str:
    """The command line's option for a cost.

    >>> option("memory_gb")
    '--memory-gb'
    """
    return f"--{name.replace('_', '-')}"


def read_resources(paths: Sequence[str | Path]) -> pd.DataFrame:
    """Resources tables of finished studies, one row a run; a run in several tables counts once.

    Raises:
        StudyError: a table cannot be read or lacks a column, or two differ about a run.
    """
    frames = [_read_table(Path(path)) for path in paths]
    if not frames:
        return pd.DataFrame(columns=list(RESOURCE_COLUMNS))
    table = pd.concat(frames, ignore_index=True).drop_duplicates(ignore_index=True)
    twice = table[table.duplicated(["arm", "seed"])]
    if len(twice):
        row = twice.iloc[0]
        raise StudyError(
            f"the resources tables differ about arm {row.arm}, seed {row.seed}",
            "Name tables of one state of the runs with --resources.",
        )
    return table


def _read_table(path: Path) -> pd.DataFrame:
    try:
        table = pd.read_csv(
            path, dtype={"arm": str, "seed": str}, keep_default_na=False, na_values=[""]
        )
    except (OSError, ValueError) as error:
        raise StudyError(
            f"{path}: cannot be read ({error})", "Name a resources.csv of `refblend study tables`."
        ) from None
    missing = [name for name in RESOURCE_COLUMNS if name not in table.columns]
    if missing:
        raise StudyError(
            f"{path}: no column {', '.join(missing)}",
            "Name a resources.csv of `refblend study tables`.",
        )
    return table[list(RESOURCE_COLUMNS)]


def measured_costs(resources: pd.DataFrame) -> dict[str, tuple[int, dict[str, float]]]:
    """Costs of each arm that has finished runs, and how many runs are behind them.

    Means over the runs; memory is their maximum. Runs that were resumed came up more than once
    and are left out. What was not measured (energy may be switched off) is left out of the costs.

    Raises:
        StudyError: the steps of a run take longer than the run.
    """
    counted = resources[(resources["status"] == "finished") & (resources["resumed"] == 0)]
    found: dict[str, tuple[int, dict[str, float]]] = {}
    for arm, runs in counted.groupby("arm", sort=False):
        startup = runs["wall_time_s"] - runs["steps"] * runs["seconds_a_step"]
        # Seeds of one job share the start-up, so that of a single run may come out near 0, or below
        # where its first step was faster than the others.
        if startup.mean() < 0:
            raise StudyError(
                f"arm {arm}: steps × seconds a step is more than the wall time of its runs",
                "Collect the runs again, or leave their table out.",
            )
        hours = runs["wall_time_s"].sum() / SECONDS_AN_HOUR
        # A sum over runs counts only where every run was measured.
        energy = runs["energy_kwh"].sum(skipna=False)
        costs = {
            "step_seconds": runs["seconds_a_step"].mean(),
            "startup_seconds": startup.mean(),
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
    given: GivenCosts,
) -> dict[str, dict[str, Figure]]:
    """Every arm's costs: measured where there are finished runs, given elsewhere.

    Raises:
        StudyError: a cost is neither measured nor given (names the options), or one is given that
            every arm has measured.
    """
    stated = {name: value for name, value in given.model_dump().items() if value is not None}
    unused = set(stated)
    costs: dict[str, dict[str, Figure]] = {}
    lacking: dict[str, list[str]] = {}
    for arm in arms:
        known = measured[arm][1] if arm in measured else {}
        costs[arm] = {name: Figure(value, "measured") for name, value in known.items()}
        for name in stated.keys() - known.keys():
            costs[arm][name] = Figure(stated[name], "given")
            unused.discard(name)
        for name in NEEDED:
            if name not in costs[arm]:
                lacking.setdefault(name, []).append(arm)
    if lacking:
        without = ", ".join(dict.fromkeys(arm for names in lacking.values() for arm in names))
        raise StudyError(
            f"no finished run gives {', '.join(lacking)} of arm {without}",
            f"Give measured values with {', '.join(map(option, lacking))}, or name the resources "
            "tables of finished runs with --resources.",
        )
    if unused:
        names = ", ".join(option(name) for name in sorted(unused))
        raise StudyError(
            f"{names}: finished runs of every arm have measured this",
            "Leave the option out, or the measurements with --no-measured.",
        )
    return costs


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


def parallel_places(slots: int, gpus_per_run: int | None) -> int:
    """Runs that fit side by side: one a core, or one on every ``gpus_per_run`` GPUs.

    Raises:
        StudyError: not even one fits.
    """
    if slots < 1 or (gpus_per_run is not None and gpus_per_run < 1):
        raise StudyError("--slots and --gpus-per-run must be at least 1", "Correct the value.")
    places = slots // (gpus_per_run or 1)
    if places == 0:
        raise StudyError(
            f"a run takes {gpus_per_run} GPUs and there are {slots}",
            "Raise --slots or lower --gpus-per-run.",
        )
    return places


def schedule_longest_first(seconds: Sequence[float], places: int) -> list[Placement]:
    """Longest-processing-time schedule of runs on equal places.

    Args:
        seconds: duration of every run.
        places: runs side by side, at least 1.

    Returns:
        One placement a run, in the order of ``seconds``. Equal runs keep that order.

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
    """Largest sum of the memory of runs that go on at once; the unit is that of ``memory``.

    Every run is counted with its peak from its start to its end.
    """
    return max(
        math.fsum(memory[p.run] for p in placements if p.start <= moment.start < p.end)
        for moment in placements
    )


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
        grid: as :func:`refblend.study.grid.build_grid` derives it; shared runs count once.
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

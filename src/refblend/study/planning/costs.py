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

import pandas as pd

from refblend.documents import shorten
from refblend.errors import Problems, StudyError
from refblend.study.design.grid import resolve_arm, unique_runs
from refblend.study.design.workflow import gpus_to_train

SECONDS_PER_HOUR = 3600.0
RESOURCE_COLUMNS = (
    "arm", "seed", "status", "steps", "wall_time_s", "energy_kwh", "kg_co2e", "resumed",
    "seconds_a_step", "peak_memory_gb",
)  # fmt: skip
"""Columns read from a report's table ``resources``."""
NEEDED = ["step_seconds", "startup_seconds", "memory_gb"]
COSTS = [*NEEDED, "watts", "kg_co2e_per_kwh"]
"""Without the last two a plan has no energy and no emissions."""
MAY_BE_ZERO = ("startup_seconds", "kg_co2e_per_kwh")


def read_table(path: Path, columns: Sequence[str], remedy: str) -> pd.DataFrame:
    """A CSV file with one row per run; ``arm`` and ``seed`` are text.

    Raises:
        StudyError: it is no table, lacks one of ``columns``, or has a run twice.
    """
    try:
        table = pd.read_csv(
            path, dtype={"arm": str, "seed": str}, keep_default_na=False, na_values=["", "nan"]
        )
    except (OSError, ValueError) as error:
        reason = shorten(str(error), 200)
        raise StudyError(f"{path}: cannot be read as a table ({reason})", remedy) from None
    if missing := [name for name in columns if name not in table.columns]:
        raise StudyError(f"{path}: no column {', '.join(missing)}", remedy)
    for run in table[table.duplicated(["arm", "seed"])].itertuples():
        raise StudyError(f"{path}: arm {run.arm}, seed {run.seed} has several rows", remedy)
    return table


def read_resources(paths: Sequence[Path]) -> pd.DataFrame:
    """The runs of ``resources`` tables that finished without a resume: :data:`RESOURCE_COLUMNS`.

    An arm's runs come from the last table that has any, and from it alone: another one may have
    been measured on another machine.

    Raises:
        StudyError, ProblemsError: tables that cannot be read or lack a column.
    """
    problems, found = Problems(), dict[str, pd.DataFrame]()
    for path in paths:
        with problems.noted():
            table = read_table(path, RESOURCE_COLUMNS, "Name a report's tables/resources.csv.")
            runs = table[(table["status"] == "finished") & (table["resumed"] == 0)]
            found |= {str(arm): part for arm, part in runs.groupby("arm", sort=False)}
    problems.settle()
    empty = pd.DataFrame(columns=list(RESOURCE_COLUMNS), dtype=float)
    return pd.concat(list(found.values()) or [empty], ignore_index=True)[list(RESOURCE_COLUMNS)]


def measured_costs(resources: pd.DataFrame) -> pd.DataFrame:
    """Each arm's :data:`COSTS`, NaN where not measured, and ``measured_runs``, their number.

    Means over the runs; memory is their maximum.

    Raises:
        StudyError: the steps of a run take longer than the run.
    """
    outside = resources.wall_time_s - resources.steps * resources.seconds_a_step
    arms = resources.assign(startup_seconds=outside).groupby("arm", sort=False)
    # A sum over runs counts only if every run was measured.
    totals = arms[["wall_time_s", "energy_kwh", "kg_co2e"]].sum()
    totals = totals.where(arms[list(totals.columns)].count().eq(arms.size(), axis=0))
    costs = pd.DataFrame(
        {
            "measured_runs": arms.size(),
            "step_seconds": arms.seconds_a_step.mean(),
            # Seeds of one job share the start-up, so a single run may show none, or less than 0.
            "startup_seconds": arms.startup_seconds.mean(),
            "memory_gb": arms.peak_memory_gb.max(),
            "watts": totals.energy_kwh * 1000 / (totals.wall_time_s / SECONDS_PER_HOUR),
            "kg_co2e_per_kwh": totals.kg_co2e / totals.energy_kwh,
        }
    )
    for arm in costs.index[costs.startup_seconds < 0]:
        raise StudyError(
            f"arm {arm}: steps × seconds per step exceeds the wall time of its runs",
            "Collect the runs again, or leave their table out.",
        )
    return costs.replace(math.inf, math.nan)


def arm_costs(
    arms: Sequence[str], measured: pd.DataFrame, given: Mapping[str, float]
) -> pd.DataFrame:
    """Each arm's costs: measured if it has finished runs, else as given.

    Returns:
        Columns ``measured_runs``, :data:`COSTS` (NaN: unknown) and ``given``, a list of names.

    Raises:
        StudyError: a given cost is unusable or not needed, or a needed one is not known.
    """
    if wrong := [
        f"{_options([name])}={value:g}"
        for name, value in given.items()
        if not math.isfinite(value) or value < 0 or (value == 0 and name not in MAY_BE_ZERO)
    ]:
        raise StudyError(f"{', '.join(wrong)}: no positive number", "Correct every value.")
    costs = measured.reindex(list(arms))
    unknown = costs.isna()
    costs = costs.fillna({"measured_runs": 0, **given}).astype({"measured_runs": int})
    lacking = costs[NEEDED].isna()
    if names := [name for name in NEEDED if lacking[name].any()]:
        raise StudyError(
            f"no finished run gives {', '.join(names)} of arm "
            f"{', '.join(costs.index[lacking.any(axis=1)])}",
            f"Give measured values with {_options(names)}.",
        )
    if unused := [name for name in given if not unknown[name].any()]:
        raise StudyError(
            f"{_options(unused)}: already measured in finished runs of every arm",
            "Drop the option.",
        )
    costs["given"] = [[name for name in given if unknown.loc[arm, name]] for arm in costs.index]
    return costs


def _options(names: Sequence[str]) -> str:
    return ", ".join(f"--{name.replace('_', '-')}" for name in names)


def planned_runs(
    grid: pd.DataFrame, scale: str, params: str | Path = "params", given: int | None = None
) -> pd.DataFrame:
    """Each arm's training steps, given or ``trainer.total_training_steps``, and a run's GPUs.

    Returns:
        Columns ``steps`` and ``gpus``.

    Raises:
        StudyError: an arm's number of steps depends on its data and is not given.
        ConfigError: an arm's configuration is not acceptable.
    """
    found: dict[str, dict[str, int]] = {}
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
        found[str(row.arm)] = {"steps": planned, "gpus": gpus_to_train(config)}
    return pd.DataFrame.from_dict(found, orient="index")


@dataclass(frozen=True)
class StudyPlan:
    """Totals of a study; null where a cost is unknown or does not apply."""

    places: int
    """Concurrent runs."""
    runs: int
    run_hours: float
    gpu_hours: float | None
    makespan_hours: float
    peak_memory_gb: float
    """GiB if the largest runs are at their peaks at the same time."""
    energy_kwh: float | None
    kg_co2e: float | None
    arms: pd.DataFrame
    """By arm: ``runs``, ``hours_per_run``, those of :func:`planned_runs` and :func:`arm_costs`."""


def makespan(durations: Sequence[float], places: int) -> float:
    """When the last run ends, longest first on the place that is free first (LPT; Graham 1969)."""
    ends = [0.0] * places
    for duration in sorted(durations, reverse=True):
        heapq.heappush(ends, heapq.heappop(ends) + duration)
    return max(ends)


def plan_study(
    grid: pd.DataFrame, planned: pd.DataFrame, costs: pd.DataFrame, slots: int
) -> StudyPlan:
    """Schedule every run of a grid and add up what it costs; shared runs count once.

    ``planned`` is of :func:`planned_runs`, ``costs`` of :func:`arm_costs`. ``slots`` are cores, one
    per run, or GPUs: at a time run as many as would if each needed those of the largest.

    Raises:
        StudyError: not even one run fits.
    """
    gpus = int(planned.gpus.max())
    places = slots // max(1, gpus)
    if places < 1:
        raise StudyError(f"a run needs {gpus} of --slots and there are {slots}", "Raise --slots.")
    runs = unique_runs(grid).groupby("arm", sort=False).size()
    arms = costs.loc[runs.index].join(planned).assign(runs=runs)
    seconds = arms.startup_seconds + arms.steps * arms.step_seconds
    arms["hours_per_run"] = seconds / SECONDS_PER_HOUR
    durations = arms.hours_per_run.repeat(runs)
    energy = arms.hours_per_run * runs * arms.watts / 1000
    return StudyPlan(
        places=places,
        runs=len(durations),
        run_hours=float(durations.sum()),
        gpu_hours=float((arms.hours_per_run * runs * arms.gpus).sum()) if gpus else None,
        makespan_hours=makespan(durations.tolist(), places),
        peak_memory_gb=float(arms.memory_gb.repeat(runs).nlargest(places).sum()),
        energy_kwh=_known_sum(energy),
        kg_co2e=_known_sum(energy * arms.kg_co2e_per_kwh),
        arms=arms,
    )


def _known_sum(values: pd.Series) -> float | None:
    return None if values.isna().any() else float(values.sum())

"""What a run of an arm costs: *measured* in finished runs or *given* by the user, never assumed.

A run's duration is ``startup_seconds + steps × step_seconds``, where start-up is all of a measured
run's wall time that is no step: coming up, validation, checkpoints, and the end. Measured costs
hold for the machine, and for as many runs side by side, as they were measured with.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pandas as pd
from pydantic import ValidationError

from refblend.config.base import NonNegativeFloat, PositiveFloat, Section
from refblend.errors import StudyError

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
"""Columns that are read of :func:`refblend.study.report.m1.tables.resources`."""


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

"""The cost of an arm's run: *measured* in finished runs or *given* by the user, never assumed.

A run lasts ``startup_seconds + steps × step_seconds``, where start-up is all of a measured run's
wall time outside its steps: loading, validation, checkpoints, and shutdown. Measured costs hold for
the machine and the number of concurrent runs with which they were measured.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pandas as pd
from pydantic import ValidationError

from refblend.config.base import NonNegativeFloat, PositiveFloat, Section
from refblend.errors import Problems, StudyError

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


class GivenCosts(Section):
    """Costs given by the user for arms without a measured run; null: not given."""

    step_seconds: PositiveFloat | None = None
    """Seconds of a training step."""
    startup_seconds: NonNegativeFloat | None = None
    """Seconds of a run outside its training steps."""
    memory_gb: PositiveFloat | None = None
    """Peak memory of a run, GiB."""
    watts: PositiveFloat | None = None
    """Mean power of a run, W."""
    kg_co2e_per_kwh: NonNegativeFloat | None = None
    """Carbon intensity of the electricity; without it the plan has no emissions."""


NEEDED = ("step_seconds", "startup_seconds", "memory_gb")
"""Costs that a plan needs. Power and carbon intensity may stay unknown: a machine
whose energy cannot be measured still gets its hours and its memory."""


@dataclass(frozen=True)
class Cost:
    """A cost in the unit of :class:`GivenCosts`, and where it comes from."""

    value: float
    origin: Literal["measured", "given"]


def given_costs(**values: float | None) -> GivenCosts:
    """Check the user's costs.

    Raises:
        StudyError: lists the values that are negative, zero where that makes no sense, or not
            finite.
    """
    try:
        return GivenCosts.model_validate(values)
    except ValidationError as error:
        found = [f"{option(str(p['loc'][0]))}={p['input']}: {p['msg']}" for p in error.errors()]
        raise StudyError("; ".join(found), "Correct every value.") from None


def option(name: str) -> str:
    """The command line's option for a cost.

    >>> option("memory_gb")
    '--memory-gb'
    """
    return f"--{name.replace('_', '-')}"


def newest_last(paths: Iterable[str | Path]) -> list[Path]:
    """Tables by the time at which they were written, as :func:`read_resources` expects them."""
    return sorted(map(Path, paths), key=lambda path: (path.stat().st_mtime_ns, str(path)))


def read_resources(paths: Sequence[str | Path]) -> tuple[pd.DataFrame, list[str]]:
    """Runs that count, of the resources tables of finished studies; a later table wins.

    A run that several tables agree on counts once. Where tables differ about a run of an arm, as
    after a milestone was trained again on another machine, this arm's runs are taken from the last
    table that has any, and from it alone.

    Returns:
        One row per run that finished without being resumed (:data:`RESOURCE_COLUMNS`), and a
        sentence for every table that was preferred to others.

    Raises:
        StudyError, ProblemsError: tables that cannot be read or lack a column.
    """
    problems, frames = Problems(), []
    for path in map(Path, paths):
        with problems.noted():
            frames.append(_read_table(path).assign(source=str(path)))
    problems.settle()
    if not frames:
        return pd.DataFrame(columns=list(RESOURCE_COLUMNS)), []
    table = counted_runs(pd.concat(frames, ignore_index=True))
    kept: list[pd.DataFrame] = []
    preferred: dict[str, dict[str, list[str]]] = {}
    for arm, runs in table.groupby("arm", sort=False):
        distinct = runs.drop_duplicates(list(RESOURCE_COLUMNS))
        if distinct.duplicated("seed").any():
            *others, last = runs["source"].unique()
            distinct = runs[runs["source"] == last]
            preferred.setdefault(last, {}).setdefault(", ".join(others), []).append(str(arm))
        kept.append(distinct)
    chosen = pd.concat(kept) if kept else table
    notes = [
        f"{', '.join(arms)}: measured in {last}; the runs in {others} differ and are left out"
        for last, by_others in preferred.items()
        for others, arms in by_others.items()
    ]
    return chosen[list(RESOURCE_COLUMNS)].reset_index(drop=True), notes


def counted_runs(resources: pd.DataFrame) -> pd.DataFrame:
    """Runs that finished without a resume: resumed ones started up more than once."""
    return resources[(resources["status"] == "finished") & (resources["resumed"] == 0)]


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
    twice = table[table.duplicated(["arm", "seed"])]
    if len(twice):
        run = twice.iloc[0]
        raise StudyError(
            f"{path}: arm {run.arm}, seed {run.seed} has several rows",
            "Keep one row per run, or write the table again with `refblend study tables`.",
        )
    return table[list(RESOURCE_COLUMNS)]


def measured_costs(resources: pd.DataFrame) -> dict[str, tuple[int, dict[str, float]]]:
    """Costs of each arm, and the number of runs that they were measured in.

    Means over the runs; memory is their maximum. What was not measured (energy may be switched
    off) is left out of the costs. ``resources`` has the runs of :func:`counted_runs`.

    Raises:
        StudyError: the steps of a run take longer than the run.
    """
    found: dict[str, tuple[int, dict[str, float]]] = {}
    impossible: list[str] = []
    for arm, runs in resources.groupby("arm", sort=False):
        startup = runs["wall_time_s"] - runs["steps"] * runs["seconds_a_step"]
        # Seeds of one job share the start-up, so a single run may show almost none, or less than 0
        # if its first step was faster than the others.
        if startup.mean() < 0:
            impossible.append(str(arm))
            continue
        hours = runs["wall_time_s"].sum() / SECONDS_PER_HOUR
        # A sum over runs counts only if every run was measured.
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
    if impossible:
        raise StudyError(
            f"arm {', '.join(impossible)}: steps × seconds per step exceeds the wall time of runs",
            "Collect the runs again, or leave their table out.",
        )
    return found


def arm_costs(
    arms: Sequence[str], measured: Mapping[str, tuple[int, Mapping[str, float]]], given: GivenCosts
) -> dict[str, dict[str, Cost]]:
    """Every arm's costs: measured if there are finished runs, given otherwise.

    Raises:
        StudyError: a needed cost is neither measured nor given (names the options), or one is
            given that was measured for every arm.
    """
    stated = {name: value for name, value in given.model_dump().items() if value is not None}
    unused = set(stated)
    costs: dict[str, dict[str, Cost]] = {}
    lacking: dict[str, list[str]] = {}
    for arm in arms:
        known = measured[arm][1] if arm in measured else {}
        costs[arm] = {name: Cost(value, "measured") for name, value in known.items()}
        for name in stated.keys() - known.keys():
            costs[arm][name] = Cost(stated[name], "given")
            unused.discard(name)
        for name in NEEDED:
            if name not in costs[arm]:
                lacking.setdefault(name, []).append(arm)
    if lacking:
        without = ", ".join(dict.fromkeys(arm for names in lacking.values() for arm in names))
        raise StudyError(
            f"no finished run gives {', '.join(lacking)} of arm {without}",
            f"Give measured values with {', '.join(map(option, lacking))}, or name the "
            "resources tables of finished runs with --resources.",
        )
    if unused:
        names = ", ".join(option(name) for name in sorted(unused))
        raise StudyError(
            f"{names}: already measured in finished runs of every arm",
            "Drop the option, or ignore the measurements with --no-measured.",
        )
    return costs

"""The cost of the whole study, by experiment, next to the estimates made before it.

Hours are run time, on whatever hardware. Energy and emissions are codecarbon's estimates for the
processes of each run. A run that several experiments share counts once: for the first of M2's that
has its arm, else for M3. M1's runs are among those of one or the other.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from refblend.errors import StudyError
from refblend.study.design.spec import experiments_of
from refblend.study.planning.costs import (
    NEEDED,
    Cost,
    counted_runs,
    measured_costs,
    plan_study,
)
from refblend.study.report.m3.study import REPORT, M3Study
from refblend.study.report.registry import Tables, read_experiments
from refblend.study.runs.collect import Collected
from refblend.study.runs.incidents import resources

GPU_HOURS_PER_RUN = (0.5, 1.5)
"""Planned before the study: GPU-hours of one run on 4 A800 or A100."""
SPEC_RUNS = (12, 20)
"""Planned before the study: runs of the ablation grid, 6–30 GPU-hours together."""

SUMS = ("hours", "energy_kwh", "kg_co2e")
COLUMNS = ("what", "runs", *SUMS, "note")
M2_COLUMNS = ("arm", "experiments", "runs", *SUMS)


@REPORT.table("costs")
def costs(study: M3Study) -> pd.DataFrame:
    """Measured costs by experiment and in total, then the estimates.

    Returns:
        Columns :data:`COLUMNS`; what was not measured or is not estimated is missing.
    """
    of_m1, of_m2 = runs_of_m1(study), runs_of_m2(study)
    kept = [run not in of_m2 for run in run_names(study.collected.runs)]
    own = replace(study.collected, runs=study.collected.runs[kept])
    elsewhere = [run for run in of_m1 if run in of_m2]
    measured = [*m2_costs(study, elsewhere), m3_costs(own, of_m1, kept.count(False))]
    total: dict[str, Any] = {"what": "all, measured"}
    for name in ("runs", *SUMS):
        total[name] = pd.Series([row[name] for row in measured], dtype=float).sum(min_count=1)
    absent = [row["what"] for row in measured if pd.isna(row["energy_kwh"])]
    total["note"] = f"without the energy of {', '.join(absent)}" if absent else ""
    rows = [*measured, total, planned_costs(own), *spec_costs(int(total["runs"]))]
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    return table.astype({"runs": "Int64", "note": "str"})


@REPORT.table("costs_main", shown=True)
def costs_in_short(study: M3Study, tables: Tables) -> pd.DataFrame:
    """The same with M2's experiments in one row."""
    table = tables["costs"]
    own = table["what"].isin(study.m2_experiments)
    if not own.any():
        return table
    part = table[own]
    lacking = ", ".join(part["what"][part["energy_kwh"].isna()])
    row: dict[str, Any] = {"what": "M2", "note": f"without the energy of {lacking}" * bool(lacking)}
    row |= {name: part[name].sum(min_count=1) for name in ("runs", *SUMS)}
    short = pd.DataFrame([row], columns=list(COLUMNS)).astype(table.dtypes)
    return pd.concat([short, table[~own]], ignore_index=True)


def m2_costs(study: M3Study, of_m1: Sequence[tuple[str, int]]) -> list[dict[str, Any]]:
    """One row per experiment of M2, from its table ``costs_by_arm``; none where M2 wrote none.

    ``of_m1`` are those of M1's runs that M2 has, too.

    Raises:
        StudyError: the table lacks a column.
    """
    table = study.m2_table("costs_by_arm")
    if table is None:
        return []
    missing = [name for name in M2_COLUMNS if name not in table.columns]
    if missing:
        raise StudyError(
            f"{study.inputs.results}/m2/tables/costs_by_arm.csv: no column {', '.join(missing)}",
            "Rebuild M2 first, e.g. by `snakemake m2`.",
        )
    first = table["experiments"].fillna("").str.split().str[0].fillna("other")
    rows = []
    for name, part in table.groupby(first, sort=False):
        sums = {key: part[key].sum(min_count=1) for key in SUMS}
        note = note_of_m1(arm for arm, _ in of_m1 if arm in set(part["arm"]))
        rows.append({"what": str(name), "runs": int(part["runs"].sum()), **sums, "note": note})
    return rows


def m3_costs(own: Collected, of_m1: Sequence[tuple[str, int]], shared: int) -> dict[str, Any]:
    """The confirming runs that no experiment of M2 has; it has ``shared`` others."""
    runs = own.runs
    hours = runs["wall_time_s"].sum(min_count=1) / 3600
    sums = {key: runs[key].sum(min_count=1) for key in SUMS[1:]}
    notes = [f"without {shared} that M2 has"] if shared else []
    names = set(run_names(runs))
    notes += filter(None, [note_of_m1(run[0] for run in of_m1 if run in names)])
    return {"what": "M3", "runs": len(runs), "hours": hours, **sums, "note": "; ".join(notes)}


def runs_of_m1(study: M3Study) -> list[tuple[str, int]]:
    """Arm and seed of every run of M1, in the order of its file."""
    params = study.inputs.params
    specs = read_experiments(tuple(experiments_of("m1", params)), params).values()
    seeds_by_arm = [spec.seeds_by_arm(study.inputs.scale) for spec in specs]
    return [(arm, seed) for found in seeds_by_arm for arm, seeds in found.items() for seed in seeds]


def runs_of_m2(study: M3Study) -> set[tuple[str, int]]:
    """Arm and seed of every run in M2's table ``resources``; none where M2 wrote none."""
    table = study.m2_table("resources")
    return set() if table is None else set(run_names(table))


def run_names(runs: pd.DataFrame) -> list[tuple[str, int]]:
    """Arm and seed of every row."""
    return [(str(arm), int(seed)) for arm, seed in zip(runs["arm"], runs["seed"], strict=True)]


def note_of_m1(arms: Iterable[str]) -> str:
    """Whose runs a row has of M1's."""
    names = ", ".join(dict.fromkeys(arms))
    return f"with M1's runs of {names}" if names else ""


def planned_costs(collected: Collected) -> dict[str, Any]:
    """The estimate of `refblend plan` for the same runs, from their own measured costs of a step.

    It should be close to the measured row; if not, a run's steps do not explain its time.
    """
    row: dict[str, Any] = {"what": "M3, `refblend plan`", "runs": len(collected.runs)}
    known = measured_costs(counted_runs(resources(collected)))
    arms = list(dict.fromkeys(collected.runs.arm))
    lacking = [arm for arm in arms if arm not in known or not set(NEEDED) <= known[arm][1].keys()]
    if lacking or not arms:
        return row | {"note": f"no measured costs of {', '.join(lacking) or 'any arm'}"}
    costs = {
        arm: {name: Cost(value, "measured") for name, value in known[arm][1].items()}
        for arm in arms
    }
    steps = collected.finished.groupby("arm")["steps"].max()
    grid = collected.runs[["arm", "seed"]].astype(str).assign(overrides="{}")
    planned = plan_study(grid, {arm: int(steps[arm]) for arm in arms}, costs, slots=1)
    row |= {"hours": planned.run_hours, "note": "from measured seconds a step and a start"}
    return row | {"energy_kwh": planned.energy_kwh, "kg_co2e": planned.kg_co2e}


def spec_costs(runs: int) -> list[dict[str, Any]]:
    """The estimate made before the study, in GPU-hours: for its own grid, and for ours."""
    low, high = GPU_HOURS_PER_RUN
    few, many = SPEC_RUNS
    what = "estimate before the study"
    return [
        {
            "what": f"{what}: planned grid",
            "note": f"{few * low:g}–{many * high:g} GPU-hours for {few}–{many} runs of "
            f"{low:g}–{high:g} GPU-hours on 4 A800 or A100; it gives no energy",
        },
        {
            "what": f"{what}: this grid",
            "runs": runs,
            "note": f"{runs * low:g}–{runs * high:g} GPU-hours at {low:g}–{high:g} a run",
        },
    ]

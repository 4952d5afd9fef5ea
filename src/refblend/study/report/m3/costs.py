"""The cost of the whole study, by experiment, next to the estimates made before it.

Hours are run time, on whatever hardware. Energy and emissions are codecarbon's estimates for the
processes of each run. A run that several experiments share counts once, for the first of them in
the order of M2, which is also where M1's runs are.
"""

from typing import Any

import pandas as pd

from refblend.errors import StudyError
from refblend.study.design.spec import experiments_of
from refblend.study.planning.costs import NEEDED, Cost, counted_runs, measured_costs
from refblend.study.planning.plan import plan_study
from refblend.study.report.m3.study import REPORT, M3Study
from refblend.study.report.registry import read_experiments
from refblend.study.runs.collect import Collected
from refblend.study.runs.incidents import resources

GPU_HOURS_PER_RUN = (0.5, 1.5)
"""Planned before the study: GPU-hours of one run on 4 A800 or A100."""
SPEC_RUNS = (12, 20)
"""Planned before the study: runs of the ablation grid, 6–30 GPU-hours together."""

SUMS = ("hours", "energy_kwh", "kg_co2e")
COLUMNS = ("what", "runs", *SUMS, "note")
M2_COLUMNS = ("arm", "experiments", "runs", *SUMS)


@REPORT.table("costs", shown=True)
def costs(study: M3Study) -> pd.DataFrame:
    """Measured costs by experiment and in total, then the estimates.

    Returns:
        Columns :data:`COLUMNS`; what was not measured or is not estimated is missing.
    """
    measured = [*m2_costs(study), m3_costs(study.collected)]
    total: dict[str, Any] = {"what": "all, measured"}
    for name in ("runs", *SUMS):
        total[name] = pd.Series([row[name] for row in measured], dtype=float).sum(min_count=1)
    absent = [row["what"] for row in measured if pd.isna(row["energy_kwh"])]
    total["note"] = f"without the energy of {', '.join(absent)}" if absent else ""
    rows = [*measured, total, planned_costs(study.collected), *spec_costs(int(total["runs"]))]
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    return table.astype({"runs": "Int64", "note": "str"})


def m2_costs(study: M3Study) -> list[dict[str, Any]]:
    """One row per experiment of M2, from its table ``costs_by_arm``; none where M2 wrote none.

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
            "Make M2's tables again.",
        )
    stability = arms_of_milestone("m1", study)
    first = table["experiments"].fillna("").str.split().str[0].fillna("other")
    rows = []
    for name, part in table.groupby(first, sort=False):
        sums = {key: part[key].sum(min_count=1) for key in SUMS}
        note = "with M1's runs" if stability & set(part["arm"]) else ""
        rows.append({"what": str(name), "runs": int(part["runs"].sum()), **sums, "note": note})
    return rows


def arms_of_milestone(milestone: str, study: M3Study) -> set[str]:
    """Arms of all experiments of a milestone."""
    params = study.inputs.params
    names = tuple(experiments_of(milestone, params))
    return {arm for spec in read_experiments(names, params).values() for arm in spec.arms}


def m3_costs(collected: Collected) -> dict[str, Any]:
    """The confirming runs."""
    runs = collected.runs
    hours = runs["wall_time_s"].sum(min_count=1) / 3600
    sums = {key: runs[key].sum(min_count=1) for key in SUMS[1:]}
    return {"what": "M3", "runs": len(runs), "hours": hours, **sums, "note": ""}


def planned_costs(collected: Collected) -> dict[str, Any]:
    """The estimate of `refblend plan` for M3's runs, from their own measured costs of a step.

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

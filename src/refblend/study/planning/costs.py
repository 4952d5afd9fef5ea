"""``refblend plan``: what a study costs, from finished runs of its arms, never assumed.

A run is planned to cost what its arm's measured runs cost on average. That holds for the machine,
the training steps and the number of concurrent runs with which they were measured.
"""

import heapq
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from refblend.errors import StudyError
from refblend.study.design.grid import unique_runs


def read_resources(paths: Sequence[Path]) -> pd.DataFrame:
    """The runs of reports' tables ``resources.csv`` that finished without a resume.

    An arm's runs come from the last table that has any, and from it alone: another one may have
    been measured on another machine.
    """
    found: dict[str, pd.DataFrame] = {}
    for path in paths:
        table = pd.read_csv(path, dtype={"arm": str}, keep_default_na=False, na_values=[""])
        runs = table[(table.status == "finished") & (table.resumed == 0)]
        found |= {str(arm): part for arm, part in runs.groupby("arm", sort=False)}
    return pd.concat(found.values()) if found else pd.DataFrame(columns=["arm"])


def makespan(durations: Sequence[float], places: int) -> float:
    """When the last run ends, longest first on the place that is free first (LPT; Graham 1969)."""
    ends = [0.0] * places
    for duration in sorted(durations, reverse=True):
        heapq.heappush(ends, heapq.heappop(ends) + duration)
    return max(ends)


def plan_study(
    grid: pd.DataFrame, resources: pd.DataFrame, gpus: Mapping[str, int], slots: int
) -> tuple[pd.DataFrame, dict[str, float]]:
    """Schedule every run of a grid and add up what it costs; shared runs count once.

    ``resources`` is of :func:`read_resources`; ``gpus`` are those of a run of each arm. ``slots``
    are cores, one per run, or GPUs: as many runs go side by side as if each needed as many as the
    largest. StudyError if an arm has no finished run, or not even one run fits.

    Returns by arm its runs, hours, GiB and kWh of a run, and how many runs were measured; and the
    totals. What is unknown is NaN.
    """
    largest = max(gpus.values())
    places = slots // max(1, largest)
    if places < 1:
        raise StudyError(
            f"a run needs {largest} of --slots and there are {slots}", "Raise --slots."
        )
    runs, measured = unique_runs(grid).groupby("arm", sort=False).size(), resources.groupby("arm")
    if lacking := [arm for arm in runs.index if arm not in measured.groups]:
        raise StudyError(
            f"no run of arm {', '.join(lacking)} has finished",
            "Report an experiment with a finished run of each first. For scale gpu, "
            "`python -m refblend.study.planning.gpu` plans without runs.",
        )
    means = measured[["wall_time_s", "energy_kwh", "kg_co2e"]].mean().loc[runs.index]
    arms = pd.DataFrame(
        {
            "runs": runs,
            "h per run": means.wall_time_s / 3600,
            "GiB": measured.peak_memory_gb.max().loc[runs.index],
            "kWh per run": means.energy_kwh,
            "measured runs": measured.size().loc[runs.index],
        }
    )
    hours, each = arms["h per run"], pd.Series(gpus)[runs.index]
    totals = {
        "runs": len(unique_runs(grid)),
        "side by side": places,
        "run hours": (hours * runs).sum(),
        "GPU hours": (hours * runs * each).sum() if largest else math.nan,
        "makespan, h": makespan(hours.repeat(runs).tolist(), places),
        "peak memory, GiB": arms.GiB.repeat(runs).nlargest(places).sum(),
        "energy, kWh": (means.energy_kwh * runs).sum(skipna=False),
        "emissions, kg CO2e": (means.kg_co2e * runs).sum(skipna=False),
    }
    return arms, totals

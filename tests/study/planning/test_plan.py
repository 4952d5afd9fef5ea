import itertools
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_runs import resource_row

from refblend.errors import StudyError
from refblend.study.planning.costs import makespan, plan_study, read_resources

HOUR = 3600.0


def grid_of(**seeds: int) -> pd.DataFrame:
    rows = [(arm, str(seed)) for arm, count in seeds.items() for seed in range(count)]
    return pd.DataFrame(rows, columns=["arm", "seed"]).assign(overrides="{}", experiment="A")


def hand_made_plan(slots: int, short: int = 0, long: int = 0) -> dict[str, float]:
    """Totals of two short runs of an hour and one of two hours that need so many GPUs."""
    measured = [
        resource_row("short", 1, wall_time_s=0.5 * HOUR, energy_kwh=0.05, peak_memory_gb=0.5),
        resource_row("short", 2, wall_time_s=1.5 * HOUR, energy_kwh=0.15, peak_memory_gb=1.0),
        resource_row("long", 1, wall_time_s=2 * HOUR, energy_kwh=0.6, peak_memory_gb=4.0),
    ]
    gpus = {"short": short, "long": long}
    return plan_study(grid_of(short=2, long=1), pd.DataFrame(measured), gpus, slots)[1]


def test_totals_of_a_study_computed_by_hand() -> None:
    totals = hand_made_plan(slots=2)
    assert (totals["runs"], totals["side by side"]) == (3, 2)
    assert totals["run hours"] == pytest.approx(4)
    assert totals["makespan, h"] == pytest.approx(2)
    assert totals["peak memory, GiB"] == 5.0
    assert totals["energy, kWh"] == pytest.approx(0.1 + 0.1 + 0.6)
    assert totals["emissions, kg CO2e"] == pytest.approx(3 * 0.0004)
    assert math.isnan(totals["GPU hours"])


def test_gpus_are_counted_by_run() -> None:
    totals = hand_made_plan(slots=7, short=1, long=4)
    assert totals["side by side"] == 1
    assert totals["GPU hours"] == pytest.approx(2 * 1 + 2 * 4)
    assert totals["makespan, h"] == pytest.approx(4)
    with pytest.raises(StudyError, match="needs 4 of --slots and there are 3"):
        hand_made_plan(slots=3, short=1, long=4)


def test_energy_needs_a_measurement_of_every_arm() -> None:
    measured = pd.DataFrame([resource_row("a", 1), resource_row("b", 1, energy_kwh=math.nan)])
    _, totals = plan_study(grid_of(a=1, b=1), measured, {"a": 0, "b": 0}, 1)
    assert math.isnan(totals["energy, kWh"])
    assert totals["emissions, kg CO2e"] == pytest.approx(0.0008)
    with pytest.raises(StudyError, match="no run of arm c has finished"):
        plan_study(grid_of(a=1, c=1), measured, {"a": 0, "c": 0}, 1)


def test_a_shared_run_is_planned_once() -> None:
    grid = pd.concat([grid_of(a=2), grid_of(a=2).assign(experiment="B")], ignore_index=True)
    measured = pd.DataFrame([resource_row("a", 1)])
    assert plan_study(grid, measured, {"a": 0}, 1)[1]["runs"] == 2


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 50), min_size=1, max_size=6), st.integers(1, 3))
def test_makespan_is_within_grahams_bound_of_the_best(seconds: list[int], count: int) -> None:
    best = min(
        max(sum(s for s, p in zip(seconds, chosen, strict=True) if p == k) for k in range(count))
        for chosen in itertools.product(range(count), repeat=len(seconds))
    )
    # Graham's bound, reached by 3, 3, 2, 2, 2 on two places.
    assert best <= makespan(seconds, count) <= best * (4 / 3 - 1 / (3 * count))


def read(tmp_path: Path, *tables: list[dict[str, Any]]) -> list[tuple[str, int, float]]:
    """Arm, seed and seconds of what is read from tables of these rows."""
    paths = [tmp_path / f"{k}.csv" for k in range(len(tables))]
    for path, rows in zip(paths, tables, strict=True):
        pd.DataFrame(rows).to_csv(path, index=False)
    table = read_resources(paths)
    return list(zip(table.arm, table.seed, table.wall_time_s, strict=True))


def test_an_arm_comes_from_the_last_table_that_has_a_run_of_it_finished_in_one_go(tmp_path) -> None:
    first = [resource_row("off", 1), resource_row("off", 3), resource_row("on", 1)]
    second = [resource_row("off", 1, wall_time_s=9.0), resource_row("off", 2, resumed=1)]
    failed = [resource_row("off", 1, status="failed"), resource_row("null", 1)]
    found = [("off", 1, 9.0), ("on", 1, 100.0), ("null", 1, 100.0)]
    assert read(tmp_path, first, second, failed) == found

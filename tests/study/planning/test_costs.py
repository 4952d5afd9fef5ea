from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from resource_tables import resource_row, resource_table

from refblend.errors import ProblemsError, StudyError
from refblend.study.planning.costs import COSTS, arm_costs, measured_costs, read_resources


def read(tmp_path: Path, *tables: list[dict[str, Any]]) -> pd.DataFrame:
    """What is read from tables of these rows."""
    paths = [tmp_path / f"{k}.csv" for k in range(len(tables))]
    for path, rows in zip(paths, tables, strict=True):
        resource_table(*rows).to_csv(path, index=False)
    return read_resources(paths)


def measured(**arms: dict[str, float]) -> pd.DataFrame:
    frame = pd.DataFrame(arms.values(), index=list(arms), columns=COSTS, dtype=float)
    return frame.assign(measured_runs=3)


def test_measured_costs_are_means_over_runs_that_finished_in_one_go(tmp_path: Path) -> None:
    rows = [
        resource_row("off", 1),
        resource_row("off", 2, seconds_a_step=1.5, energy_kwh=0.002, peak_memory_gb=4.0),
        resource_row("off", 3, status="failed", seconds_a_step=9.0),
        resource_row("off", 4, resumed=1, wall_time_s=900.0),
        resource_row("linear", 1, energy_kwh=float("nan")),
    ]
    costs = measured_costs(read(tmp_path, rows))
    # Start-ups of 100 − 80 and 100 − 60 s; 3 Wh in 200 s are 54 W; 0.8 g of 3 Wh.
    assert costs.loc["off"].to_dict() == pytest.approx(
        {
            "measured_runs": 2,
            "step_seconds": 1.75,
            "startup_seconds": 30.0,
            "memory_gb": 4.0,
            "watts": 54.0,
            "kg_co2e_per_kwh": 0.8 / 3,
        }
    )
    assert costs.columns[costs.loc["linear"].isna()].tolist() == ["watts", "kg_co2e_per_kwh"]


def test_a_run_shorter_than_its_steps_is_refused() -> None:
    with pytest.raises(StudyError, match="arm off: steps × seconds"):
        measured_costs(resource_table(resource_row("off", 1, wall_time_s=79.0)))


def test_given_costs_fill_what_was_not_measured_and_say_so() -> None:
    known = measured(off={"step_seconds": 2.0, "startup_seconds": 5.0, "memory_gb": 3.0})
    stated = {"step_seconds": 4.0, "startup_seconds": 6.0, "memory_gb": 7.0, "watts": 8.0}
    costs = arm_costs(["off", "new"], known, stated)
    assert costs.step_seconds.to_dict() == {"off": 2.0, "new": 4.0}
    assert costs.measured_runs.to_dict() == {"off": 3, "new": 0}
    assert costs.given.to_dict() == {"off": ["watts"], "new": list(stated)}


def test_costs_that_nobody_knows_are_asked_for() -> None:
    known = measured(off={"step_seconds": 2.0, "startup_seconds": 5.0})
    with pytest.raises(StudyError, match=r"step_seconds, .*memory_gb of arm off, new.*--memory-gb"):
        arm_costs(["off", "new"], known, {})


def test_a_given_cost_without_use_is_refused() -> None:
    known = measured_costs(resource_table(resource_row("off", 1)))
    with pytest.raises(StudyError, match="--step-seconds: already measured"):
        arm_costs(["off"], known, {"step_seconds": 1.0})


@pytest.mark.parametrize("value", [-1.0, 0.0, float("nan"), float("inf")])
def test_given_values_are_checked(value: float) -> None:
    with pytest.raises(StudyError, match=r"--memory-gb=.*--watts=0"):
        arm_costs(["off"], measured(), {"memory_gb": value, "watts": 0.0})


def seeds_of(table: pd.DataFrame) -> list[tuple[str, str, float]]:
    return list(zip(table.arm, table.seed, table.wall_time_s, strict=True))


def test_an_arm_comes_from_the_last_table_that_has_it(tmp_path: Path) -> None:
    first = [resource_row("off", 1), resource_row("off", 3, status="failed")]
    second = [resource_row("off", 1), resource_row("off", 2), resource_row("null", 1)]
    table = read(tmp_path, first, second)
    assert seeds_of(table) == [("off", "1", 100.0), ("off", "2", 100.0), ("null", "1", 100.0)]


def test_a_newer_run_that_does_not_count_hides_no_older_one(tmp_path: Path) -> None:
    table = read(tmp_path, [resource_row("off", 1)], [resource_row("off", 1, status="failed")])
    assert seeds_of(table) == [("off", "1", 100.0)]


def test_unusable_tables_are_named(tmp_path: Path) -> None:
    with pytest.raises(ProblemsError, match=r"one\.csv: cannot be read.*two\.csv: cannot be read"):
        read_resources([tmp_path / "one.csv", tmp_path / "two.csv"])
    (tmp_path / "few.csv").write_text("arm,seed\noff,1\n")
    with pytest.raises(StudyError, match=r"few\.csv: no column status"):
        read_resources([tmp_path / "few.csv"])
    rows = [resource_row("off", 1), resource_row("off", 2), resource_row("off", 2)]
    with pytest.raises(StudyError, match=r"0\.csv: arm off, seed 2 has several rows"):
        read(tmp_path, rows)

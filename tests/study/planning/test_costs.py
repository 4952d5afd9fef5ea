from pathlib import Path

import pandas as pd
import pytest
from resource_tables import resource_row, resource_table

from refblend.errors import ProblemsError, StudyError
from refblend.study.planning.costs import (
    Cost,
    arm_costs,
    counted_runs,
    measured_costs,
    read_resources,
)


def test_measured_costs_are_means_over_runs_that_finished_in_one_go() -> None:
    table = resource_table(
        resource_row("off", 1),
        resource_row("off", 2, seconds_a_step=1.5, energy_kwh=0.002, peak_memory_gb=4.0),
        resource_row("off", 3, status="failed", seconds_a_step=9.0),
        resource_row("off", 4, resumed=1, wall_time_s=900.0),
        resource_row("linear", 1, energy_kwh=float("nan")),
    )
    runs, costs = measured_costs(counted_runs(table))["off"]
    assert runs == 2
    # Start-ups of 100 − 80 and 100 − 60 s; 3 Wh in 200 s are 54 W; 0.8 g of 3 Wh.
    assert costs == pytest.approx(
        {
            "step_seconds": 1.75,
            "startup_seconds": 30.0,
            "memory_gb": 4.0,
            "watts": 54.0,
            "kg_co2e_per_kwh": 0.8 / 3,
        }
    )
    assert measured_costs(counted_runs(table))["linear"][1].keys() == {
        "step_seconds",
        "startup_seconds",
        "memory_gb",
    }


def test_a_run_shorter_than_its_steps_is_refused() -> None:
    with pytest.raises(StudyError, match="arm off: steps × seconds"):
        measured_costs(resource_table(resource_row("off", 1, wall_time_s=79.0)))


def test_given_costs_fill_what_was_not_measured_and_say_so() -> None:
    measured = {"off": (3, {"step_seconds": 2.0, "startup_seconds": 5.0, "memory_gb": 3.0})}
    stated = {"step_seconds": 4.0, "startup_seconds": 6.0, "memory_gb": 7.0, "watts": 8.0}
    costs = arm_costs(["off", "new"], measured, stated)
    assert costs["off"]["step_seconds"] == Cost(2.0, "measured")
    assert costs["off"]["watts"] == Cost(8.0, "given")
    assert costs["new"]["step_seconds"] == Cost(4.0, "given")


def test_costs_that_nobody_knows_are_asked_for() -> None:
    measured = {"off": (3, {"step_seconds": 2.0, "startup_seconds": 5.0})}
    with pytest.raises(StudyError, match=r"step_seconds, .*memory_gb of arm off, new.*--memory-gb"):
        arm_costs(["off", "new"], measured, {})


def test_a_given_cost_without_use_is_refused() -> None:
    _, known = measured_costs(resource_table(resource_row("off", 1)))["off"]
    with pytest.raises(StudyError, match="--step-seconds: already measured"):
        arm_costs(["off"], {"off": (1, known)}, {"step_seconds": 1.0})


@pytest.mark.parametrize("value", [-1.0, 0.0, float("nan"), float("inf")])
def test_given_values_are_checked(value: float) -> None:
    with pytest.raises(StudyError, match=r"--memory-gb=.*Correct"):
        arm_costs(["off"], {}, {"memory_gb": value})


def test_all_costs_and_tables_that_are_wrong_are_named(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"--memory-gb=-1.*--watts=0"):
        arm_costs(["off"], {}, {"memory_gb": -1.0, "watts": 0.0})
    with pytest.raises(ProblemsError, match=r"one\.csv.*two\.csv"):
        read_resources([tmp_path / "one.csv", tmp_path / "two.csv"])


def seeds_of(table: pd.DataFrame) -> list[tuple[str, str, float]]:
    return list(zip(table.arm, table.seed, table.wall_time_s, strict=True))


def test_an_arm_comes_from_the_last_table_that_has_it(tmp_path: Path) -> None:
    first, second = tmp_path / "a.csv", tmp_path / "b.csv"
    rows = [resource_row("off", 1), resource_row("off", 3, status="failed")]
    resource_table(*rows).to_csv(first, index=False)
    rows = [resource_row("off", 1), resource_row("off", 2), resource_row("null", 1)]
    resource_table(*rows).to_csv(second, index=False)
    table = read_resources([first, second])
    assert seeds_of(table) == [("off", "1", 100.0), ("off", "2", 100.0), ("null", "1", 100.0)]


def test_a_newer_run_that_does_not_count_hides_no_older_one(tmp_path: Path) -> None:
    old, new = tmp_path / "old.csv", tmp_path / "new.csv"
    resource_table(resource_row("off", 1)).to_csv(old, index=False)
    resource_table(resource_row("off", 1, status="failed")).to_csv(new, index=False)
    table = read_resources([old, new])
    assert seeds_of(table) == [("off", "1", 100.0)]


def test_unusable_tables_are_named(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"none\.csv: cannot be read"):
        read_resources([tmp_path / "none.csv"])
    (tmp_path / "few.csv").write_text("arm,seed\noff,1\n")
    with pytest.raises(StudyError, match=r"few\.csv: no column status"):
        read_resources([tmp_path / "few.csv"])


def test_a_run_with_two_rows_of_one_table_is_named(tmp_path: Path) -> None:
    path = tmp_path / "resources.csv"
    rows = [resource_row("off", 1), resource_row("off", 2), resource_row("off", 2)]
    resource_table(*rows).to_csv(path, index=False)
    with pytest.raises(StudyError, match="arm off, seed 2 has several rows") as caught:
        read_resources([path])
    assert str(path) in str(caught.value)

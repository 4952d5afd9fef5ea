import itertools
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from refblend.cli.study import app
from refblend.errors import StudyError
from refblend.study.design.grid import build_grid
from refblend.study.planning.costs import (
    RESOURCE_COLUMNS,
    Figure,
    GivenCosts,
    arm_costs,
    given_costs,
    measured_costs,
    read_resources,
)
from refblend.study.planning.plan import StudyPlan, plan_study, planned_steps
from refblend.study.planning.schedule import (
    busiest_memory,
    makespan,
    parallel_places,
    schedule_longest_first,
)

PARAMS = Path(__file__).parents[2] / "params"
durations = st.lists(st.floats(0.1, 1e4), min_size=1, max_size=12)
places = st.integers(1, 6)


def resource_row(arm: str, seed: int, **changed: Any) -> dict[str, Any]:
    """A run of 40 steps of 2 s that took 100 s and 1 Wh."""
    row = {
        "arm": arm,
        "seed": str(seed),
        "status": "finished",
        "steps": 40,
        "wall_time_s": 100.0,
        "energy_kwh": 0.001,
        "kg_co2e": 0.0004,
        "resumed": 0,
        "seconds_a_step": 2.0,
        "peak_memory_gb": 3.0,
    }
    return row | changed


def resource_table(*rows: dict[str, Any]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=list(RESOURCE_COLUMNS))


def costs_of(seconds: float, memory: float, watts: float) -> dict[str, Figure]:
    """A run whose duration does not depend on its steps but for one second each."""
    return {
        "step_seconds": Figure(1.0, "given"),
        "startup_seconds": Figure(seconds, "given"),
        "memory_gb": Figure(memory, "given"),
        "watts": Figure(watts, "given"),
    }


def grid_of(**seeds: int) -> pd.DataFrame:
    rows = [(arm, str(seed)) for arm, count in seeds.items() for seed in range(count)]
    return pd.DataFrame(rows, columns=["arm", "seed"]).assign(overrides="{}", experiment="A")


def test_longest_runs_start_first_on_the_place_that_is_free_first() -> None:
    # By hand: 7 and 6 start; 5 follows 6 (until 11), 4 follows 7 (until 11), 3 follows on place 0.
    found = schedule_longest_first([3, 5, 7, 4, 6], 2)
    assert [(p.run, p.place, p.start, p.end) for p in found] == [
        (0, 0, 11, 14),
        (1, 1, 6, 11),
        (2, 0, 0, 7),
        (3, 0, 7, 11),
        (4, 1, 0, 6),
    ]
    assert makespan(found) == 14


def test_the_schedule_can_miss_the_best_one_as_graham_says() -> None:
    # Graham's worst case for two places: 3 + 3 and 2 + 2 + 2 would end at 6.
    assert makespan(schedule_longest_first([3, 3, 2, 2, 2], 2)) == 7


@given(durations, places)
def test_makespan_lies_between_its_bounds(seconds: list[float], count: int) -> None:
    end = makespan(schedule_longest_first(seconds, count))
    slack = 1 + 1e-9
    assert end * slack >= sum(seconds) / count
    assert end * slack >= max(seconds)
    assert end <= sum(seconds) * slack


@given(durations)
def test_one_place_takes_the_sum(seconds: list[float]) -> None:
    assert makespan(schedule_longest_first(seconds, 1)) == pytest.approx(sum(seconds))


@given(durations)
def test_a_place_a_run_takes_the_longest(seconds: list[float]) -> None:
    assert makespan(schedule_longest_first(seconds, len(seconds))) == max(seconds)


@given(durations, places)
def test_no_place_holds_two_runs_at_once(seconds: list[float], count: int) -> None:
    found = schedule_longest_first(seconds, count)
    assert [p.run for p in found] == list(range(len(seconds)))
    assert all(p.end == p.start + seconds[p.run] for p in found)
    for place in range(count):
        here = sorted((p.start, p.end) for p in found if p.place == place)
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(here))


@settings(max_examples=40)
@given(st.lists(st.integers(1, 50), min_size=1, max_size=6), st.integers(1, 3))
def test_makespan_is_within_grahams_bound_of_the_best(seconds: list[int], count: int) -> None:
    best = min(
        max(sum(s for s, p in zip(seconds, chosen, strict=True) if p == k) for k in range(count))
        for chosen in itertools.product(range(count), repeat=len(seconds))
    )
    assert makespan(schedule_longest_first(seconds, count)) <= best * (4 / 3 - 1 / (3 * count))


def test_memory_is_counted_where_runs_overlap() -> None:
    # Runs of 4, 3 and 3 s on two places: 4 with 3 until 3 s, then 4 with the second 3, then it
    # alone; a run that starts when another ends does not meet it.
    found = schedule_longest_first([4.0, 3.0, 3.0], 2)
    assert busiest_memory(found, [1.0, 2.0, 8.0]) == 9.0
    assert busiest_memory(found, [1.0, 8.0, 2.0]) == 9.0
    assert busiest_memory(schedule_longest_first([1.0, 1.0], 1), [5.0, 7.0]) == 7.0


@given(durations, places)
def test_memory_is_at_least_the_largest_and_at_most_that_of_full_places(
    seconds: list[float], count: int
) -> None:
    memory = [1.0 + i for i in range(len(seconds))]
    peak = busiest_memory(schedule_longest_first(seconds, count), memory)
    assert max(memory) <= peak <= sum(sorted(memory)[-count:])


def test_measured_costs_are_means_over_runs_that_finished_in_one_go() -> None:
    table = resource_table(
        resource_row("off", 1),
        resource_row("off", 2, seconds_a_step=1.5, energy_kwh=0.002, peak_memory_gb=4.0),
        resource_row("off", 3, status="failed", seconds_a_step=9.0),
        resource_row("off", 4, resumed=1, wall_time_s=900.0),
        resource_row("linear", 1, energy_kwh=float("nan")),
    )
    runs, costs = measured_costs(table)["off"]
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
    assert measured_costs(table)["linear"][1].keys() == {
        "step_seconds",
        "startup_seconds",
        "memory_gb",
    }


def test_a_run_shorter_than_its_steps_is_refused() -> None:
    with pytest.raises(StudyError, match="arm off: steps × seconds"):
        measured_costs(resource_table(resource_row("off", 1, wall_time_s=79.0)))


def test_given_costs_fill_what_was_not_measured_and_say_so() -> None:
    measured = {"off": (3, {"step_seconds": 2.0, "startup_seconds": 5.0, "memory_gb": 3.0})}
    stated = GivenCosts(step_seconds=4, startup_seconds=6, memory_gb=7, watts=8)
    costs = arm_costs(["off", "new"], measured, stated)
    assert costs["off"]["step_seconds"] == Figure(2.0, "measured")
    assert costs["off"]["watts"] == Figure(8.0, "given")
    assert costs["new"]["step_seconds"] == Figure(4.0, "given")


def test_costs_that_nobody_knows_are_asked_for() -> None:
    measured = {"off": (3, {"step_seconds": 2.0, "startup_seconds": 5.0, "memory_gb": 3.0})}
    with pytest.raises(StudyError, match=r"watts, step_seconds.* of arm off, new.*--watts, --step"):
        arm_costs(["off", "new"], measured, GivenCosts())


def test_a_given_cost_without_use_is_refused() -> None:
    _, known = measured_costs(resource_table(resource_row("off", 1)))["off"]
    with pytest.raises(StudyError, match="--step-seconds: finished runs"):
        arm_costs(["off"], {"off": (1, known)}, GivenCosts(step_seconds=1))


@pytest.mark.parametrize("value", [-1.0, 0.0, float("nan"), float("inf")])
def test_given_values_are_checked(value: float) -> None:
    with pytest.raises(StudyError, match=r"--memory-gb=.*Correct"):
        given_costs(memory_gb=value)


def test_places() -> None:
    assert parallel_places(3, None) == 3
    assert parallel_places(9, 4) == 2
    with pytest.raises(StudyError, match="takes 4 GPUs and there are 3"):
        parallel_places(3, 4)
    with pytest.raises(StudyError, match="at least 1"):
        parallel_places(0, None)


def hand_made_plan(slots: int, gpus_per_run: int | None = None, **more: Figure) -> StudyPlan:
    """Two short runs of an hour and one of two hours."""
    costs = {
        "short": costs_of(3600 - 10, memory=1.0, watts=100.0),
        "long": costs_of(7200 - 10, memory=4.0, watts=300.0) | more,
    }
    steps = {"short": 10, "long": 10}
    return plan_study(grid_of(short=2, long=1), steps, costs, slots, gpus_per_run)


def test_totals_of_a_study_computed_by_hand() -> None:
    plan = hand_made_plan(slots=2)
    assert (plan.runs, plan.places, plan.gpu_hours, plan.kg_co2e) == (3, 2, None, None)
    assert plan.run_hours == pytest.approx(4)
    assert plan.makespan_hours == plan.shortest_hours == pytest.approx(2)
    assert plan.busy_share == pytest.approx(1)
    assert plan.peak_memory_gb == 5.0
    assert plan.energy_kwh == pytest.approx(0.1 + 0.1 + 0.6)
    assert [(r["arm"], r["seed"], r["place"], r["start_hours"]) for r in plan.schedule] == [
        ("long", "0", 0, 0.0),
        ("short", "0", 1, 0.0),
        ("short", "1", 1, 1.0),
    ]


def test_gpus_are_counted_by_run() -> None:
    plan = hand_made_plan(slots=7, gpus_per_run=4)
    assert plan.places == 1
    assert plan.gpu_hours == pytest.approx(16)
    assert plan.makespan_hours == pytest.approx(4)


def test_emissions_need_the_intensity_of_every_arm() -> None:
    intensity = Figure(0.5, "given")
    assert hand_made_plan(2, kg_co2e_per_kwh=intensity).kg_co2e is None
    costs = {"a": costs_of(3600, 1, 1000) | {"kg_co2e_per_kwh": intensity}}
    plan = plan_study(grid_of(a=2), {"a": 3600}, costs, 1)
    assert plan.kg_co2e == pytest.approx(2 * 2 * 0.5)


def test_a_shared_run_is_planned_once() -> None:
    grid = pd.concat([grid_of(a=2), grid_of(a=2).assign(experiment="B")], ignore_index=True)
    assert plan_study(grid, {"a": 1}, {"a": costs_of(1, 1, 1)}, 1).runs == 2


def test_tables_are_joined_and_must_agree(tmp_path: Path) -> None:
    first, second = tmp_path / "a.csv", tmp_path / "b.csv"
    resource_table(resource_row("off", 1)).to_csv(first, index=False)
    both = resource_table(resource_row("off", 1), resource_row("null", 1))
    both.to_csv(second, index=False)
    table = read_resources([first, second])
    assert list(zip(table.arm, table.seed, strict=True)) == [("off", "1"), ("null", "1")]
    resource_table(resource_row("off", 1, wall_time_s=101.0)).to_csv(second, index=False)
    with pytest.raises(StudyError, match="differ about arm off, seed 1"):
        read_resources([first, second])


def test_unusable_tables_are_named(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"none\.csv: cannot be read"):
        read_resources([tmp_path / "none.csv"])
    (tmp_path / "few.csv").write_text("arm,seed\noff,1\n")
    with pytest.raises(StudyError, match=r"few\.csv: no column status"):
        read_resources([tmp_path / "few.csv"])


def test_steps_follow_from_the_configuration_or_are_asked_for() -> None:
    assert planned_steps(build_grid(["M1"], "cpu", PARAMS), "cpu", PARAMS) == {
        "off": 20,
        "linear": 20,
    }
    grid = build_grid(["M1"], "gpu", PARAMS)
    with pytest.raises(StudyError, match=r"2 epochs in batches of 128.*--steps"):
        planned_steps(grid, "gpu", PARAMS)
    assert planned_steps(grid, "gpu", PARAMS, 116) == {"off": 116, "linear": 116}


def test_command_plans_from_tables_below_results(tmp_path: Path) -> None:
    tables = tmp_path / "cpu" / "m1" / "tables"
    tables.mkdir(parents=True)
    slow = {"wall_time_s": 200.0, "seconds_a_step": 4.0, "peak_memory_gb": 5.0}
    rows = [resource_row("off", 1), resource_row("linear", 1, **slow)]
    resource_table(*rows).to_csv(tables / "resources.csv", index=False)
    shown = ["plan", "M1", "--scale", "cpu", "--params", str(PARAMS), "--results", str(tmp_path)]
    result = CliRunner().invoke(app, [*shown, "--slots", "2", "--json"])
    assert result.exit_code == 0, result.output
    plan = json.loads(result.stdout)
    # Measured over 40 steps, planned for 20: three runs of 40 + 20·4 s and three of 20 + 20·2 s:
    # 120, 120, 60 on one place and 120, 60, 60 on the other; at most two runs of 5 GiB.
    assert plan["runs"] == 6
    assert plan["makespan_hours"] * 3600 == pytest.approx(300)
    assert plan["peak_memory_gb"] == 10.0
    assert plan["resources"] == [str(tables / "resources.csv")]
    assert {a["arm"]: a["costs"]["watts"]["origin"] for a in plan["arms"]} == {
        "off": "measured",
        "linear": "measured",
    }
    text = CliRunner().invoke(app, [*shown, "--slots", "2"]).stdout
    assert "6, 2 side by side" in text
    assert "2*" not in text, "nothing is given"


def test_command_marks_given_costs_and_asks_for_gpus() -> None:
    command = ["plan", "M1", "--scale", "gpu", "--slots", "8", "--params", str(PARAMS)]
    refused = CliRunner().invoke(app, command)
    assert isinstance(refused.exception, StudyError)
    assert "--gpus-per-run is missing" in str(refused.exception)
    command += ["--no-measured", "--gpus-per-run", "4", "--steps", "100", "--step-seconds", "33"]
    command += ["--startup-seconds", "300", "--memory-gb", "60", "--watts", "2000"]
    text = CliRunner().invoke(app, command).stdout
    assert "33*" in text
    assert "all costs are given" in text
    assert "6, 2 side by side" in text

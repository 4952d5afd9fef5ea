import itertools
import shutil
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refblend.errors import StudyError
from refblend.study.design.grid import build_grid
from refblend.study.planning.costs import StudyPlan, makespan, plan_study, planned_runs

PARAMS = Path(__file__).parents[3] / "params"


def costs_of(**arms: list[float | None]) -> pd.DataFrame:
    """Start-up, memory, watts and kg CO2e per kWh by arm; a step takes a second."""
    columns = ["startup_seconds", "memory_gb", "watts", "kg_co2e_per_kwh"]
    frame = pd.DataFrame(arms.values(), index=list(arms), columns=columns, dtype=float)
    return frame.assign(step_seconds=1.0)


def grid_of(**seeds: int) -> pd.DataFrame:
    rows = [(arm, str(seed)) for arm, count in seeds.items() for seed in range(count)]
    return pd.DataFrame(rows, columns=["arm", "seed"]).assign(overrides="{}", experiment="A")


def steps_of(gpus: int | dict[str, int] = 0, **arms: int) -> pd.DataFrame:
    return pd.DataFrame({"steps": arms, "gpus": gpus})


def hand_made_plan(slots: int, gpus: int | dict[str, int] = 0) -> StudyPlan:
    """Two short runs of an hour and one of two hours."""
    costs = costs_of(short=[3600 - 10, 1, 100, None], long=[7200 - 10, 4, 300, 0.5])
    planned = steps_of(gpus, short=10, long=10)
    return plan_study(grid_of(short=2, long=1), planned, costs, slots)


def test_totals_of_a_study_computed_by_hand() -> None:
    plan = hand_made_plan(slots=2)
    assert (plan.runs, plan.places, plan.gpu_hours, plan.kg_co2e) == (3, 2, None, None)
    assert plan.run_hours == pytest.approx(4)
    assert plan.makespan_hours == pytest.approx(2)
    assert plan.peak_memory_gb == 5.0
    assert plan.energy_kwh == pytest.approx(0.1 + 0.1 + 0.6)


def test_gpus_are_counted_by_run() -> None:
    gpus = {"short": 1, "long": 4}
    plan = hand_made_plan(slots=7, gpus=gpus)
    assert plan.places == 1
    assert plan.gpu_hours == pytest.approx(2 * 1 + 2 * 4)
    assert plan.makespan_hours == pytest.approx(4)
    with pytest.raises(StudyError, match="needs 4 of --slots and there are 3"):
        hand_made_plan(slots=3, gpus=gpus)


def test_emissions_and_energy_need_the_costs_of_every_arm() -> None:
    plan = plan_study(grid_of(a=2), steps_of(a=3600), costs_of(a=[3600, 1, 1000, 0.5]), 1)
    assert plan.kg_co2e == pytest.approx(2 * 2 * 0.5)
    costs = costs_of(a=[3600, 1, 1000, None], b=[3600, 1, None, None])
    plan = plan_study(grid_of(a=1, b=1), steps_of(a=1, b=1), costs, 1)
    assert (plan.energy_kwh, plan.kg_co2e, plan.peak_memory_gb) == (None, None, 1)


def test_a_shared_run_is_planned_once() -> None:
    grid = pd.concat([grid_of(a=2), grid_of(a=2).assign(experiment="B")], ignore_index=True)
    assert plan_study(grid, steps_of(a=1), costs_of(a=[1, 1, 1, None]), 1).runs == 2


def test_steps_follow_from_the_configuration_or_are_asked_for(tmp_path: Path) -> None:
    planned = planned_runs(build_grid(["M1"], "cpu", PARAMS), "cpu", PARAMS)
    assert planned.to_dict("split")["data"] == [[20, 0], [20, 0]]
    shutil.copytree(PARAMS, tmp_path, dirs_exist_ok=True)
    scale = tmp_path / "scale" / "gpu.yaml"
    scale.write_text(scale.read_text().replace("total_training_steps: 100", "total_epochs: 2"))
    grid = build_grid(["M1"], "gpu", tmp_path)
    with pytest.raises(StudyError, match=r"2 epochs in batches of 128.*--steps"):
        planned_runs(grid, "gpu", tmp_path)
    planned = planned_runs(grid, "gpu", tmp_path, 116)
    assert planned.to_dict("split")["data"] == [[116, 1], [116, 1]]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 50), min_size=1, max_size=6), st.integers(1, 3))
def test_makespan_is_within_grahams_bound_of_the_best(seconds: list[int], count: int) -> None:
    best = min(
        max(sum(s for s, p in zip(seconds, chosen, strict=True) if p == k) for k in range(count))
        for chosen in itertools.product(range(count), repeat=len(seconds))
    )
    # Graham's bound, reached by 3, 3, 2, 2, 2 on two places.
    assert best <= makespan(seconds, count) <= best * (4 / 3 - 1 / (3 * count))

"""Our statistics on the numbers that rliable was given; see data/make_rliable_reference.py."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from refblend.study.stats.comparisons import probability_of_improvement
from refblend.study.stats.statistics import Interval, iqm

REFERENCE = json.loads(
    Path(__file__).with_name("data").joinpath("rliable_reference.json").read_text()
)


def agrees(ours: Interval, theirs: dict, tasks: int) -> None:
    """Equal estimates; ends within 6 % of the width, as their random state is ignored.

    They resample within tasks; a study has one, so ends are compared where the case has one.
    """
    assert ours.estimate == pytest.approx(theirs["estimate"], rel=0, abs=1e-12)
    if tasks == 1:
        low, high = theirs["interval"]
        assert np.allclose([ours.low, ours.high], [low, high], rtol=0, atol=0.06 * (high - low))


@pytest.mark.parametrize("case", REFERENCE["cases"])
def test_aggregates(case: str) -> None:
    runs = np.array(REFERENCE["cases"][case]["x"]).ravel()
    for name, statistic in {"mean": np.mean, "iqm": iqm}.items():
        theirs = REFERENCE["cases"][case][name]["estimate"]
        assert statistic(runs) == pytest.approx(theirs, rel=0, abs=1e-12)


@pytest.mark.parametrize("case", REFERENCE["cases"])
def test_probability_of_improvement(case: str) -> None:
    x, y = (np.array(REFERENCE["cases"][case][side]).T for side in "xy")
    tasks = [
        probability_of_improvement(*task, np.random.default_rng(0), resamples=20000)
        for task in zip(x, y, strict=True)
    ]
    mean_of_tasks = replace(tasks[0], estimate=np.mean([task.estimate for task in tasks]))
    agrees(mean_of_tasks, REFERENCE["cases"][case]["probability_of_improvement"], len(x))


def test_the_reference_is_of_the_stated_version() -> None:
    assert REFERENCE["versions"]["rliable"] == "1.2.0"
    script = Path(__file__).with_name("data") / "make_rliable_reference.py"
    assert f"rliable=={REFERENCE['versions']['rliable']}" in script.read_text()

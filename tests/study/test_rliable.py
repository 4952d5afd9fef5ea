"""Our statistics on the numbers that rliable was given; see data/make_rliable_reference.py."""

import json
from pathlib import Path

import numpy as np
import pytest

from refblend.study.stats.comparisons import probability_of_improvement
from refblend.study.stats.statistics import Statistic, bootstrap_interval, iqm, mean

REFERENCE = json.loads(
    Path(__file__).with_name("data").joinpath("rliable_reference.json").read_text()
)
STATISTICS: dict[str, Statistic] = {
    "mean": mean,
    "iqm": iqm,
}


def flat(scores: list[list[float]]) -> tuple[np.ndarray, np.ndarray]:
    """Values and their tasks."""
    table = np.array(scores)
    return table.ravel(), np.tile(np.arange(table.shape[1]), table.shape[0])


def close_intervals(ours: list[float], theirs: list[float]) -> bool:
    """Ends within 6 % of the width: their random state is ignored."""
    return bool(np.allclose(ours, theirs, rtol=0, atol=0.06 * (theirs[1] - theirs[0])))


@pytest.mark.parametrize("name", STATISTICS)
@pytest.mark.parametrize("case", REFERENCE["cases"])
def test_aggregates(case: str, name: str) -> None:
    values, tasks = flat(REFERENCE["cases"][case]["x"])
    expected = REFERENCE["cases"][case][name]
    result = bootstrap_interval(
        values, np.random.default_rng(0), STATISTICS[name], strata=tasks, resamples=20000
    )
    assert result.estimate == pytest.approx(expected["estimate"], rel=0, abs=1e-12)
    assert close_intervals([result.low, result.high], expected["interval"])


@pytest.mark.parametrize("case", REFERENCE["cases"])
def test_probability_of_improvement(case: str) -> None:
    reference = REFERENCE["cases"][case]
    (x, of_x), (y, of_y) = flat(reference["x"]), flat(reference["y"])
    result = probability_of_improvement(
        x, y, np.random.default_rng(0), strata=(of_x, of_y), resamples=20000
    )
    expected = reference["probability_of_improvement"]
    assert result.estimate == pytest.approx(expected["estimate"], rel=0, abs=1e-12)
    assert close_intervals([result.low, result.high], expected["interval"])


def test_the_reference_is_of_the_stated_version() -> None:
    assert REFERENCE["versions"]["rliable"] == "1.2.0"
    script = Path(__file__).with_name("data") / "make_rliable_reference.py"
    assert f"rliable=={REFERENCE['versions']['rliable']}" in script.read_text()

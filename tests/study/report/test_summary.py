"""Summaries of arms: level and margin are those that the experiment declares."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from refblend.study.design.spec import load_experiment
from refblend.study.report.summary import Family, summarise

SPEC = load_experiment(Path(__file__).parents[3] / "params" / "study" / "A.yaml")
NOISE = np.random.default_rng(3).normal(0, 0.02, 12)
VALUES = pd.DataFrame({"off": [0.5] * 12, "linear": 0.53 + NOISE}, index=range(12))
FAMILY = Family("X", ["off", "linear"], [("linear", "off")])


def row(family: Family, measure: str = "test_greedy") -> pd.Series:
    """The treated arm's row."""
    return summarise(family, lambda _: VALUES, [measure]).set_index("arm").loc["linear"]


def test_margin_and_level_are_the_experiments() -> None:
    wide = FAMILY.declared_by(SPEC.model_copy(update={"margin": 0.1}))
    strict = FAMILY.declared_by(SPEC.model_copy(update={"alpha": 1e-4}))
    assert row(FAMILY).verdict == "better"
    assert row(wide).verdict == "equivalent"
    assert row(strict).verdict == "undecided"
    width = row(FAMILY).diff_high - row(FAMILY).diff_low
    assert row(strict).diff_high - row(strict).diff_low > 1.5 * width
    assert row(strict).high - row(strict).low == row(FAMILY).high - row(FAMILY).low


@pytest.mark.parametrize(
    ("endpoint", "measure", "verdict"),
    [
        ("final_return", "final_return", "equivalent"),
        ("final_return", "test_greedy", "better"),
        ("test_greedy", "final_return", "better"),
        ("test_greedy", "val_drawdown", "worse"),
    ],
)
def test_a_margin_is_in_the_unit_of_the_endpoint(endpoint: str, measure: str, verdict: str) -> None:
    spec = SPEC.model_copy(update={"endpoint": endpoint, "margin": 0.1})
    assert row(FAMILY.declared_by(spec), measure).verdict == verdict

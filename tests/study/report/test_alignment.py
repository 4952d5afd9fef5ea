"""Rank correlations between alignment and the outcome."""

from typing import Any, cast

import pandas as pd
import pytest

from refblend.study.report import alignment


def runs_of(outcomes: list[float]) -> pd.DataFrame:
    """Arms of growing alignment, three seeds each, with an exact reward."""
    rows = [
        {"arm": f"arm{n}", "seed": seed, "alignment": n / 10, "test_sampled": outcome}
        for n, outcome in enumerate(outcomes)
        for seed in (1, 2, 3)
    ]
    return pd.DataFrame(rows).assign(regime="exact")


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ([0.1, 0.2, 0.3, 0.4, 0.5], 1.0),
        ([0.5, 0.4, 0.3, 0.2, 0.1], -1.0),
        ([0.3] * 5, None),  # equal arms have no order
        ([0.1, 0.2, 0.3], None),  # too few
    ],
)
def test_arms_are_ranked(outcomes, expected, monkeypatch) -> None:
    monkeypatch.setattr(alignment, "_pairs", lambda _: runs_of(outcomes))
    table = alignment.rank_correlations(cast("Any", None))
    assert table.regime.tolist() == ([] if expected is None else ["all", "exact"])
    assert expected is None or table.rho.tolist() == pytest.approx([expected] * 2)

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from refblend.study.runs.collect import collect
from refblend.study.runs.stability import stability

MakeRun = Callable[..., Path]


def grid_of(*runs: tuple[str, int]) -> pd.DataFrame:
    rows = [{"experiment": "M1", "arm": a, "seed": str(s), "overrides": "{}"} for a, s in runs]
    return pd.DataFrame(rows, dtype=str)


def test_stability_reads_start_and_end(tmp_path: Path, make_run: MakeRun) -> None:
    make_run(tmp_path / "cpu" / "linear" / "seed_1", 1, steps=20)
    row = stability(collect(grid_of(("linear", 1)), "cpu", tmp_path).metrics).iloc[0]
    assert (row.entropy_start, row.entropy_end) == (pytest.approx(0.875), pytest.approx(0.4))
    assert row.length_end == 24
    assert row.val_drawdown == 0

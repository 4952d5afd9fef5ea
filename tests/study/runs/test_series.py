from collections.abc import Callable
from pathlib import Path

import pandas as pd

from refblend.study.runs.collect import collect
from refblend.study.runs.series import series

MakeRun = Callable[..., Path]


def grid_of(*runs: tuple[str, int]) -> pd.DataFrame:
    rows = [{"experiment": "M1", "arm": a, "seed": str(s), "overrides": "{}"} for a, s in runs]
    return pd.DataFrame(rows, dtype=str)


def test_a_series_is_one_metric_for_all_runs(tmp_path: Path, make_run: MakeRun) -> None:
    make_run(tmp_path / "cpu" / "off" / "seed_1", 1, blended=False)
    make_run(tmp_path / "cpu" / "linear" / "seed_1", 1)
    metrics = collect(grid_of(("off", 1), ("linear", 1)), "cpu", tmp_path).metrics
    chosen = series(metrics, "actor/ref_quality/avg_entropy", "actor/entropy")
    assert set(chosen.metric) == {"actor/entropy"}
    assert series(metrics, "absent").empty

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from refblend.study.runs.collect import collect
from refblend.study.runs.curves import series, stability, validation_frame

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


def test_several_validation_sources_are_averaged() -> None:
    names = {"val-core/a/b/acc/mean@1": 0.2, "val-core/c/acc/mean@1": 0.6}
    rows = [
        {"arm": "off", "seed": 1, "step": 0, "metric": name, "value": value}
        for name, value in names.items()
    ]
    frame = validation_frame(pd.DataFrame(rows))
    assert frame.value.tolist() == [pytest.approx(0.4)]


def test_the_sanity_set_is_known_by_its_own_name_only() -> None:
    names = {
        "val-core/openai/gsm8k/acc/mean@1": 0.2,
        "val-core/my/sanity_checks/acc/mean@1": 0.6,
        "val-core/refblend/sanity/acc/mean@1": 0.9,
    }
    rows = [
        {"arm": "off", "seed": 1, "step": 0, "metric": name, "value": value}
        for name, value in names.items()
    ]
    frame = validation_frame(pd.DataFrame(rows)).set_index("measure")["value"]
    assert frame.to_dict() == {"acc": pytest.approx(0.4), "sanity": 0.9}


def test_stability_reads_start_and_end(tmp_path: Path, make_run: MakeRun) -> None:
    make_run(tmp_path / "cpu" / "linear" / "seed_1", 1, steps=20)
    row = stability(collect(grid_of(("linear", 1)), "cpu", tmp_path).metrics).iloc[0]
    assert (row.entropy_start, row.entropy_end) == (pytest.approx(0.875), pytest.approx(0.4))
    assert row.length_end == 24
    assert row.val_drawdown == 0

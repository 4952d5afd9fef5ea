from collections.abc import Callable
from pathlib import Path

import pandas as pd
from made_runs import grid_of

from refblend.study.runs.collect import collect
from refblend.study.runs.incidents import incident_counts

MakeRun = Callable[..., Path]


def test_incidents_are_summed_and_absent_runs_stay_unknown(
    tmp_path: Path, make_run: MakeRun
) -> None:
    make_run(tmp_path / "cpu" / "linear" / "seed_1", 1, incidents={"overlength": 3, "drift": 1})
    collected = collect(grid_of(("linear", 1), ("linear", 2)), "cpu", tmp_path)
    counts = incident_counts(collected)
    assert counts.loc[0, ["overlength", "drift", "judge_error"]].tolist() == [3, 1, 0]
    assert counts.loc[1, "overlength"] is pd.NA

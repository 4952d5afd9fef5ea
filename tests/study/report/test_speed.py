"""Speed: paired differences with Student's interval, and none where nothing is shared."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from refblend.study.report.speed import SPEED, SPEED_COLUMNS, readable_speed, speed_rows

pytestmark = pytest.mark.unit

FAST, SLOW = [0.5, 0.7, 0.6, 0.8], [0.4, 0.5, 0.55, 0.6]


def values(**arms: list[float]) -> pd.DataFrame:
    """``val_auc_third`` of arms, on seeds 1, 2, …"""
    rows = [
        {"arm": arm, "seed": seed, "measure": "val_auc_third", "value": value}
        for arm, own in arms.items()
        for seed, value in enumerate(own, start=1)
    ]
    return pd.DataFrame(rows)


def test_a_difference_is_paired_and_has_students_interval() -> None:
    table = speed_rows(values(fast=FAST, slow=SLOW), [("fast", "slow")])
    (row,) = table.to_dict("records")
    pairs = np.subtract(FAST, SLOW)
    low, high = stats.t.interval(0.95, 3, pairs.mean(), stats.sem(pairs))
    assert list(table) == list(SPEED_COLUMNS)
    assert (row["measure"], row["arm"], row["reference"], row["n"]) == (SPEED[0], "fast", "slow", 4)
    assert [row[name] for name in ("estimate", "low", "high")] == pytest.approx(
        [pairs.mean(), low, high]
    )


def test_only_the_named_seeds_count() -> None:
    both = speed_rows(
        values(fast=FAST, slow=SLOW), [("fast", "slow")], {"fast": [1, 2], "slow": [2, 3]}
    )
    assert both.n.tolist() == [1]
    assert both.estimate.tolist() == pytest.approx([0.2])
    assert both.low.isna().all()


def test_arms_that_share_no_seed_have_no_row() -> None:
    table = speed_rows(values(fast=FAST), [("fast", "slow")])
    assert table.empty
    assert list(table) == list(SPEED_COLUMNS)
    assert readable_speed(table).empty


def test_readers_see_a_row_for_each_pair_and_a_column_for_each_measure() -> None:
    frame = values(fast=FAST, slow=SLOW)
    steps = frame.assign(measure="steps_to_70", value=10 * (1 - frame.value))
    table = readable_speed(speed_rows(pd.concat([frame, steps]), [("fast", "slow")]))
    assert len(table) == 1
    assert [str(value)[:6] for value in table.iloc[0]] == ["fast −", "4 pair", "+0.137", "-1.375"]

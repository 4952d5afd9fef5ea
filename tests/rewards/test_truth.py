"""Answers and what they deserve: ``truth.csv`` says why of each one."""

import csv
from collections import Counter
from pathlib import Path

import pytest

from refblend.rewards.result import RewardResult
from refblend.rewards.rule import RuleReward

with Path(__file__).with_name("truth.csv").open(encoding="utf-8", newline="") as file:
    ROWS = list(csv.DictReader(file))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['gold']} {row['why']}")
def test_every_answer_gets_what_it_deserves(row: dict[str, str]) -> None:
    accuracies = float(row["strict"]), float(row["flexible"])
    for method, score in zip(("strict", "flexible"), accuracies, strict=True):
        result = RuleReward(method)(row["data_source"], row["answer"], row["gold"])
        assert result == RewardResult(score, *accuracies)


def test_the_table_is_large_and_has_both_verdicts_of_every_source() -> None:
    assert len(ROWS) >= 150
    assert len({(row["data_source"], row["gold"], row["answer"]) for row in ROWS}) == len(ROWS)
    verdicts = Counter((row["data_source"], row["flexible"]) for row in ROWS)
    assert min(verdicts.values()) >= 4
    assert len(verdicts) == 6

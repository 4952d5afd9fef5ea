"""All rows of the real GSM8K: REFBLEND_GSM8K_DIR names a folder with train.jsonl and test.jsonl."""

import os
from typing import Any

import pytest

from refblend.data.gsm8k import load_split
from refblend.data.schema import PromptRow
from refblend.data.splits import hold_out
from refblend.rewards.rule import RuleReward

FOLDER = os.environ.get("REFBLEND_GSM8K_DIR", "")
pytestmark = pytest.mark.skipif(not FOLDER, reason="REFBLEND_GSM8K_DIR does not name GSM8K")


@pytest.fixture(scope="module")
def splits() -> dict[str, list[PromptRow]]:
    return {name: load_split(FOLDER, name) for name in ("train", "test")}


@pytest.fixture(scope="module")
def rows(splits: dict[str, list[PromptRow]]) -> list[PromptRow]:
    return [row for part in splits.values() for row in part]


def test_every_row_is_converted_and_the_splits_are_disjoint(splits) -> None:
    assert {name: len(part) for name, part in splits.items()} == {"train": 7473, "test": 1319}
    steps = [row.extra["n_steps"] for part in splits.values() for row in part]
    assert (min(steps), max(steps)) == (2, 11)
    drawn = hold_out(splits["train"], splits["test"], 512, 64, seed=1)
    questions = [row.question for part in drawn.values() for row in part]
    assert len(questions) == len(set(questions)) == 8792


@pytest.mark.parametrize("method", ["strict", "flexible"])
def test_every_gold_solution_is_right(rows: list[PromptRow], method: Any) -> None:
    reward = RuleReward(method)
    wrong = [
        row.index
        for row in rows
        if reward(row.data_source, row.solution, row.ground_truth).score != 1.0
    ]
    assert wrong == []

import pytest

from refblend.data.schema import PromptRow
from refblend.data.splits import hold_out
from refblend.errors import DataError


def row(index: int, question: str) -> PromptRow:
    return PromptRow(index, "s", [{"role": "user", "content": question}], question, "1", "")


TRAIN = [row(i, f"train {i % 90}") for i in range(100)] + [row(100, "test 3")]
TEST = [row(i, f"test {i}") for i in range(20)]


def test_splits_are_disjoint_and_lose_only_what_is_repeated() -> None:
    splits = hold_out(TRAIN, TEST, 10, 5, seed=1)
    assert {name: len(rows) for name, rows in splits.items()} == {
        "train": 75,
        "validation": 10,
        "test": 20,
        "sanity": 5,
    }
    questions = [r.question for rows in splits.values() for r in rows]
    assert len(questions) == len(set(questions)) == 110
    assert splits["test"] == TEST


def test_the_draw_depends_on_the_seed_only() -> None:
    first = hold_out(TRAIN, TEST, 10, 5, seed=1)
    assert hold_out(TRAIN, TEST, 10, 9, seed=1)["validation"] == first["validation"]
    assert hold_out(TRAIN, TEST, 10, 5, seed=2)["validation"] != first["validation"]
    assert first["validation"] != TRAIN[:10]


def test_something_must_be_left_to_train_on() -> None:
    with pytest.raises(DataError, match="leave nothing of 90 train rows"):
        hold_out(TRAIN, TEST, 80, 10, seed=1)

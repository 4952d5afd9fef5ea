"""Tables on a judge's quality, against values counted by hand."""

import pandas as pd
import pytest

from refblend.scoring.measure.quality import (
    discrimination,
    judge_metrics,
    misjudged,
    reliability_table,
    with_length_bins,
)


def scored(rows: list[tuple[float, int, bool]], **columns: list[object]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=["score", "label", "valid"])
    return frame.assign(
        question="q",
        response="a",
        path=["text" if valid else "default" for valid in frame["valid"]],
        new_tokens=10,
        response_chars=range(len(frame)),
    ).assign(**columns)


ROWS = [(0.95, 1, True), (0.9, 1, True), (0.25, 0, True), (0.2, 1, True), (0.5, 0, False)]


def test_reliability_counts_valid_scores_only() -> None:
    table = reliability_table(scored([*ROWS, (1.0, 0, True)]))
    assert table["low"].tolist() == [0.2, 0.9]
    assert table["count"].tolist() == [2, 3]
    assert table["score"].tolist() == pytest.approx([0.225, (0.95 + 0.9 + 1.0) / 3])
    assert table["accuracy"].tolist() == pytest.approx([0.5, 2 / 3])


def test_figures() -> None:
    row = judge_metrics(scored(ROWS))
    # Pairs (right, wrong): 0.95 and 0.9 beat 0.25, 0.2 does not.
    assert row["auc"] == pytest.approx(2 / 3)
    assert row["ece"] == pytest.approx((abs(0.45 - 1) + abs(1.85 - 2)) / 4)
    assert row["valid_rate"] == row["nonzero_rate"] == 0.8
    assert row["count"] == 5
    assert "auc_expected" not in row
    # The expected values order the pairs fully; the invalid one does not count.
    both = judge_metrics(scored(ROWS, expected=[0.9, 0.8, 0.1, 0.4, 0.5]))
    assert (both["auc"], both["auc_expected"]) == (row["auc"], 1.0)


def test_the_wrong_answers_that_the_judge_likes_best() -> None:
    rows = [(0.0, 1, True), (0.0, 0, True), (0.0, 0, True), (0.0, 0, False), (0.0, 0, True)]
    frame = scored(
        rows,
        question=["a", "a", "a", "b", "c"],
        response=["right", "wrong", "worse", "unread", "other"],
        raw=["1", "2", "3", "4", "5"],
        expected=[0.99, 0.8, 0.9, 0.95, 0.9],
    )
    found = misjudged(frame)
    assert found["response"].tolist() == ["worse", "other"], "one of a question, valid, wrong"
    assert found["expected"].tolist() == [0.9, 0.9]


def test_groups_and_their_shares() -> None:
    frame = scored(ROWS * 4, difficulty=[1, 2, 3, 1, 2] * 4)
    table = discrimination(frame, "difficulty")
    assert table["difficulty"].tolist() == [1, 2, 3]
    assert table["share"].tolist() == [0.4, 0.4, 0.2]
    lengths = discrimination(with_length_bins(frame), "length_bin")
    assert lengths["count"].tolist() == [5, 5, 4, 6]  # quartiles 5, 10 and 14 of 0 … 19
    assert lengths["length_bin"].iloc[0].startswith("0–")

"""Tables on a judge's quality, against values counted by hand."""

import pandas as pd
import pytest

from refblend.scoring.clipping import ScoringLimits
from refblend.scoring.generative import GenerativeJudge, JudgeOptions
from refblend.scoring.measure.quality import (
    RESULT_COLUMNS,
    discrimination,
    judge_metrics,
    misjudged,
    reliability_table,
    score_corpus,
    score_histogram,
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


def test_histogram_by_label() -> None:
    table = score_histogram(scored(ROWS), bins=2)
    counts = {(r["low"], r["label"]): r["count"] for r in table.to_dict("records")}
    assert counts == {(0.0, 0): 1, (0.5, 0): 0, (0.0, 1): 1, (0.5, 1): 2}


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
    assert misjudged(frame, count=1)["question"].tolist() == ["a"]


def test_groups_and_their_shares() -> None:
    frame = scored(ROWS * 4, difficulty=[1, 2, 3, 1, 2] * 4)
    table = discrimination(frame, "difficulty")
    assert table["difficulty"].tolist() == [1, 2, 3]
    assert table["share"].tolist() == [0.4, 0.4, 0.2]
    lengths = discrimination(with_length_bins(frame), "length_bin")
    assert lengths["count"].tolist() == [5, 5, 4, 6]  # quartiles 5, 10 and 14 of 0 … 19
    assert lengths["length_bin"].iloc[0].startswith("0–")


def test_length_bins_of_equal_lengths() -> None:
    frame = with_length_bins(scored(ROWS, response_chars=[7] * 5))
    assert set(frame["length_bin"]) == {"7 characters"}
    assert discrimination(frame, "length_bin")["count"].tolist() == [5]


def test_score_corpus_keeps_order_and_columns(embedded, chat_tokenizer, scripted) -> None:
    engine = scripted(
        chat_tokenizer, lambda p: "\\box{0.9}" if "[[right]]\n" in p else "\\box{0.1}"
    )
    judge = GenerativeJudge(engine, chat_tokenizer, embedded, JudgeOptions(ScoringLimits(2048)))
    corpus = pd.DataFrame(
        {
            "question": "q",
            "response": ["right", "wrong"] * 5,
            "label": [1, 0] * 5,
            "mine": range(10),
        }
    )
    done: list[int] = []
    result = score_corpus(judge, corpus, batch_size=4, progress=done.append)
    assert done == [4, 8, 10]
    assert len(engine.calls) == 3
    assert result["score"].tolist() == [0.9, 0.1] * 5
    assert result["mine"].tolist() == list(range(10))
    assert set(RESULT_COLUMNS) <= set(result.columns)
    assert judge_metrics(result)["auc"] == 1.0

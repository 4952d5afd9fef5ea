"""Tables on a judge's quality, against values counted by hand."""

import pandas as pd
import pytest

from refblend.errors import DataError
from refblend.scoring.calibration import (
    RESULT_COLUMNS,
    calibration_report,
    check_corpus,
    discrimination,
    reliability_table,
    score_corpus,
    score_histogram,
    with_length_bins,
)
from refblend.scoring.clipping import ScoringLimits
from refblend.scoring.judge import Judge, JudgeOptions


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
    row = discrimination(scored(ROWS)).iloc[0]
    # Pairs (right, wrong): 0.95 and 0.9 beat 0.25, 0.2 does not.
    assert row["auc"] == pytest.approx(2 / 3)
    assert row["ece"] == pytest.approx((abs(0.45 - 1) + abs(1.85 - 2)) / 4)
    assert row["valid_rate"] == row["nonzero_rate"] == 0.8
    assert row["count"] == 5


def test_report_by_difficulty_and_length() -> None:
    report = calibration_report(scored(ROWS * 4, difficulty=[1, 2, 3, 1, 2] * 4))
    assert report.by_difficulty["difficulty"].tolist() == [1, 2, 3]
    assert report.by_difficulty["count"].sum() == 20
    assert report.by_length["count"].sum() == 20
    assert len(report.by_length) == 4
    assert report.by_length["length_bin"].iloc[0].startswith("0–")
    assert set(report.tables()) == {
        "overall",
        "by_length",
        "by_difficulty",
        "reliability",
        "histogram",
    }
    assert calibration_report(scored(ROWS)).by_difficulty.empty


def test_length_bins_of_equal_lengths() -> None:
    frame = scored(ROWS, response_chars=[7] * 5)
    assert set(with_length_bins(frame)["length_bin"]) == {"7 characters"}
    assert calibration_report(frame).by_length["count"].tolist() == [5]


def test_score_corpus_keeps_order_and_columns(embedded, chat_tokenizer, scripted) -> None:
    engine = scripted(
        chat_tokenizer, lambda p: "\\box{0.9}" if "[[right]]\n" in p else "\\box{0.1}"
    )
    judge = Judge(engine, chat_tokenizer, embedded, JudgeOptions(ScoringLimits(2048)))
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
    assert discrimination(result).iloc[0]["auc"] == 1.0


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (pd.DataFrame({"question": ["q"]}), "missing response, label"),
        (pd.DataFrame({"question": [], "response": [], "label": []}), "no rows"),
        (pd.DataFrame({"question": ["q"], "response": [None], "label": [1]}), "row 0 is not text"),
        (pd.DataFrame({"question": ["q"], "response": ["a"], "label": [0.5]}), "neither 0 nor 1"),
    ],
)
def test_what_is_no_corpus(frame: pd.DataFrame, words: str) -> None:
    with pytest.raises(DataError, match=words):
        check_corpus(frame)

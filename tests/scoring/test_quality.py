"""The quality report on a scripted judge, and scores read again from its text."""

import json

import numpy as np
import pandas as pd
import pytest

from refblend.scoring.generative import GenerativeJudge
from refblend.scoring.judge import judge_config
from refblend.scoring.measure.quality import (
    auc_within,
    measure_quality,
    valid_within,
    with_written_scores,
)
from refblend.scoring.measure.record import plain

CORPUS = pd.DataFrame(
    {
        "question": "How many eggs?",
        "response": ["good 1+1=2", "bad", "good", "bad 1+1=3"] * 3,
        "label": [1, 0, 1, 0] * 3,
        "worked": [True, False, False, True] * 3,
        "target": [1.0, 0.1, 0.7, 0.1] * 3,
        "difficulty": [1, 1, 2, 2] * 3,
    }
)


def answer(prompt: str) -> str:
    """Right about all answers with examples, about none without."""
    sample = prompt.split("===")[-1]
    good = ("good" in sample) == ("===" in prompt)
    return "7" * 30 + ("\\box{0.90}" if good else "\\box{0.10}")


def test_both_forms_in_one_go(embedded, chat_tokenizer, scripted) -> None:
    engine = scripted(chat_tokenizer, answer)
    judge = GenerativeJudge(engine, chat_tokenizer, judge_config("m", "hf", "embedded", {}))
    seen: list[int] = []
    forms, samples = measure_quality(judge, CORPUS, progress=seen.append)
    assert seen == [12, 24]
    assert samples["form"].value_counts().to_dict() == {"few_shot": 12, "compact": 12}
    full = forms["few_shot"]
    assert (full["auc"], full["auc_worked"], full["auc_expected"]) == (1.0, 1.0, 1.0)
    assert forms["compact"]["auc"] == 0.0
    assert full["worked"] == 0.5
    assert full["mean_absolute_error"] == pytest.approx((0.1 + 0.0 + 0.2 + 0.0) / 4)
    assert full["distinct_scores"] == 2
    assert full["valid"] == {"32": 0.0, "64": 1.0}
    assert full["by_difficulty"]["share"].tolist() == [0.5, 0.5]
    assert set(full["reliability"]["kind"]) == {"written", "expected"}
    assert full["histogram"].groupby("kind")["count"].sum().to_dict() == {
        "written": 12,
        "expected": 12,
    }
    json.dumps(plain(forms), allow_nan=False)


def test_written_scores(chat_tokenizer) -> None:
    frame = pd.DataFrame(
        {
            "score": [0.8, 0.35, 0.5, 0.5],
            "raw": ["\\box{0.9}", "\\box{0.37", "no idea", "the engine is dead \\box{1}"],
            "path": ["text", "token", "default", "error"],
        }
    )
    result = with_written_scores(frame, chat_tokenizer, invalid_score=0.4)
    assert result["score"].tolist() == [0.9, 0.37, 0.4, 0.4]
    assert result["expected"].tolist() == frame["score"].tolist()
    # Of four answers one has a complete box that the text parser reads.
    assert valid_within(result, chat_tokenizer, 64) == {"32": 0.25, "64": 0.25}
    assert valid_within(result, chat_tokenizer, 2) == {"2": 0.0}


def test_auc_within_questions_ignores_that_some_are_harder() -> None:
    """Pairs by hand: question a has 2 × 1 pairs, of which 1.5 are won; b has 1 pair, lost."""
    rows = [
        ("a", 0.9, 1, True),
        ("a", 0.5, 1, True),
        ("a", 0.5, 0, True),
        ("a", 0.99, 0, False),
        ("b", 0.1, 1, True),
        ("b", 0.2, 0, True),
        ("c", 0.0, 0, True),
    ]
    frame = pd.DataFrame(rows, columns=["question", "expected", "label", "valid"])
    assert auc_within(frame)["auc_within"] == pytest.approx(1.5 / 3)
    assert auc_within(frame[frame["question"] == "c"])["auc_within"] is None


def test_interval_of_auc_within_draws_questions_not_responses() -> None:
    """Oracle: 400 questions of one pair each are coin flips, whose interval is the binomial one."""
    won = np.random.default_rng(3).random(400) < 0.7
    right = pd.DataFrame({"question": range(400), "expected": won * 1.0, "label": 1})
    wrong = pd.DataFrame({"question": range(400), "expected": 0.5, "label": 0})
    frame = pd.concat([right, wrong]).assign(valid=True)
    _, low, high = auc_within(frame).values()
    half = 1.96 * np.sqrt(won.mean() * (1 - won.mean()) / 400)
    assert (low, high) == pytest.approx((won.mean() - half, won.mean() + half), abs=0.005)
    # Twenty copies of every response are no more questions: the interval stays.
    _, *copies = auc_within(pd.concat([frame] * 20)).values()
    assert copies == pytest.approx([low, high], abs=0.005)
    assert np.isnan(auc_within(frame[frame["question"] == 0])["auc_within_low"])

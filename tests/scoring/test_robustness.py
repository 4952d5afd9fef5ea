"""Experiment D on a scripted judge whose behaviour under each arm is known."""

import pandas as pd
import pytest

from refblend.scoring.generative import GenerativeJudge
from refblend.scoring.judge import judge_config
from refblend.scoring.measure.robustness import run_robustness

BASE = judge_config("m", "hf", "embedded", {"score_mode": "text"})
CORPUS = pd.DataFrame(
    {
        "question": "How many eggs?",
        "response": ["right", "wrong", "right " + "It is a warm day. " * 400] * 2,
        "label": [1, 0, 1] * 2,
    }
)


def answer(prompt: str) -> str:
    """Forty tokens of work, then the box: 32 new tokens cut it off."""
    sample = prompt.split("===")[-1]
    return "1" * 40 + ("\\box{0.90}" if "right" in sample else "\\box{0.10}")


def test_table(chat_tokenizer, scripted) -> None:
    engine = scripted(chat_tokenizer, answer)
    seen = []
    table, samples = run_robustness(
        GenerativeJudge(engine, chat_tokenizer, BASE),
        CORPUS,
        progress=lambda done, name: seen.append((name, done)),
    )
    assert len(table) == 7
    assert len(samples) == 7 * len(CORPUS)
    # A warm-up; then the base arm stands three times in the table but is scored once.
    assert len(engine.calls) == 1 + 5
    names = ("few_shot", "compact", "new_tokens_32", "new_tokens_96", "clip_off")
    assert seen == list(zip(names, (6, 12, 18, 30, 42), strict=True))
    t = table.set_index("arm")
    shares = ["valid_rate", "overlength", "clipped_rate", "compact_rate"]
    found = {arm: t.loc[arm, shares].tolist() for arm in names if arm != "new_tokens_96"}
    assert found == {
        "few_shot": pytest.approx([1.0, 0, 1 / 3, 1 / 3]),
        "compact": pytest.approx([1.0, 0, 1 / 3, 1.0]),
        "new_tokens_32": pytest.approx([0.0, 0, 1 / 3, 1 / 3]),
        "clip_off": pytest.approx([2 / 3, 2, 0.0, 1 / 3]),
    }
    assert t.loc["few_shot", "auc"] == t.loc["new_tokens_32", "fallback_rate"] == 1.0
    assert t.loc["new_tokens_32", "nonzero_rate"] == 0.0
    assert (t["seconds_per_response"] > 0).all()
    few_shot, compact, clip_off = t.loc[["few_shot", "compact", "clip_off"], "tokens_per_response"]
    assert few_shot > max(compact, clip_off)

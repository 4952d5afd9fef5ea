"""Experiment D on a scripted judge whose behaviour under each arm is known."""

import pandas as pd
import pytest

from refblend.scoring.clipping import ScoringLimits
from refblend.scoring.generative import GenerativeJudge, JudgeOptions
from refblend.scoring.measure.robustness import run_robustness

BASE = JudgeOptions(ScoringLimits(model_cap=1024))
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


def test_table(embedded, chat_tokenizer, scripted) -> None:
    engine = scripted(chat_tokenizer, answer)
    seen = []
    table, samples = run_robustness(
        GenerativeJudge(engine, chat_tokenizer, embedded, BASE),
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
    assert t.loc["few_shot", "valid_rate"] == 1.0
    assert t.loc["few_shot", "auc"] == 1.0
    assert t.loc["few_shot", "overlength"] == 0
    assert t.loc["few_shot", "clipped_rate"] == pytest.approx(1 / 3)
    assert t.loc["few_shot", "compact_rate"] == pytest.approx(1 / 3)
    assert t.loc["compact", "compact_rate"] == 1.0
    assert t.loc["new_tokens_32", "valid_rate"] == 0.0
    assert t.loc["new_tokens_32", "nonzero_rate"] == 0.0
    assert t.loc["new_tokens_32", "fallback_rate"] == 1.0
    assert t.loc["clip_off", "overlength"] == 2
    assert t.loc["clip_off", "valid_rate"] == pytest.approx(2 / 3)
    assert t.loc["clip_off", "clipped_rate"] == 0.0
    assert t.loc["clip_off", "tokens_per_response"] < t.loc["few_shot", "tokens_per_response"]
    assert (t["seconds_per_response"] > 0).all()
    assert t.loc["few_shot", "tokens_per_response"] > t.loc["compact", "tokens_per_response"]

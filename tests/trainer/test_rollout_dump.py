"""The record of a step's responses, with numbers worked by hand."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from refblend.config.algorithm import RefQualityScoreConfig
from refblend.data.schema import PromptRow
from refblend.scoring.result import JudgeResult
from refblend.trainer.batch import Experience, PromptBatch, Rollout
from refblend.trainer.saving import write_rollouts
from refblend.trainer.shaping import BlendContext, blend
from refblend.trainer.trackers import TrackerContext, Trackers
from refblend.workers.types import Sequences, response_mask

RULE = torch.tensor([1.0, 0.0])
RESULTS = [JudgeResult(0.5, True, "text", r"\box{0.5}"), JudgeResult(0.5, False, "default", "?")]


def dumped(tmp_path: Path, judged: bool = True, **settings) -> list[dict]:
    """Two responses of 4 and 2 tokens, recorded with the blend of ``settings``."""
    mask = response_mask([4, 2])
    sequences = Sequences([[1]] * 2, [[2] * 4, [2] * 2])
    rollout = Rollout(sequences, ["a\u2028b", "c"], [True, True], mask, torch.zeros(2, 4))
    rows = [PromptRow(0, "refblend/arithmetic", [], f"{n}?", str(n), "") for n in (7, 8)]
    prompts = PromptBatch(rows, [[1]] * 2, [3, 4], [0, 1])
    old = -torch.ones(2, 4), torch.full((2, 4), 0.5)
    experience = Experience(RULE, RULE, RESULTS if judged else None, *old)
    scoring = {"model_path": "judge"} | settings.pop("scoring", {})
    config = RefQualityScoreConfig(strategy="constant", scoring=scoring, **settings)
    at = BlendContext(6, 10, groups=prompts.uids)
    blended = blend(config, rollout, experience, at, np.random.default_rng(1))
    path = tmp_path / "6.jsonl"
    write_rollouts(path, 6, prompts, rollout, experience, blended)
    return [json.loads(line) for line in path.read_text(encoding="utf-8").rstrip("\n").split("\n")]


@pytest.mark.parametrize(("placement", "expected"), [("per_token", 1.3), ("terminal", 0.85)])
def test_a_response_with_all_its_scores(tmp_path, placement, expected):
    first = dumped(tmp_path, placement=placement)[0]
    assert first.pop("weight") == pytest.approx(0.3)
    # 0.7 · 1 on the last token, and 0.3 · 0.5 on four tokens or on one
    assert first.pop("blended") == pytest.approx(expected)
    assert first.pop("entropy") >= 0
    assert first == {
        "step": 6,
        "uid": 3,
        "sample": 0,
        "question": "7?",
        "ground_truth": "7",
        "response": "a\u2028b",
        "reward": 1.0,
        "acc": 1.0,
        "length": 4,
        "judge_score": 0.5,
        "judge_valid": True,
        "judge_path": "text",
        "judge_raw": r"\box{0.5}",
        "quality": 0.5,
    }


def test_a_control_records_what_was_blended_and_what_the_judge_said(tmp_path):
    lines = dumped(tmp_path, scoring={"control": "random"}, placement="terminal")
    assert [line["judge_score"] for line in lines] == [0.5, 0.5]
    for line, rule in zip(lines, RULE, strict=True):
        assert line["blended"] == pytest.approx(0.7 * float(rule) + 0.3 * line["quality"])
    assert lines[0]["quality"] != lines[1]["quality"]


def test_without_a_blend_there_is_no_weight(tmp_path):
    lines = dumped(tmp_path, judged=False, enable=False)
    assert [line["blended"] for line in lines] == [1.0, 0.0]
    assert {line[key] for line in lines for key in ("weight", "quality", "judge_raw")} == {None}


def test_no_secret_is_recorded(tmp_path, monkeypatch):
    """Whoever wrote it into a text; trackers read the same file, and have the configuration."""
    key = "sk-01/\"it's\\+Zz9="
    monkeypatch.setenv("JUDGE_KEY", f"{key}\r\n")
    quoted = JudgeResult(0.5, True, "text", f"{key} \\box{{0.5}}")
    monkeypatch.setattr(f"{__name__}.RESULTS", [quoted, quoted])
    (tmp_path / "rollouts").mkdir()
    dumped(tmp_path / "rollouts", scoring={"http": {"bearer_env": "JUDGE_KEY"}})
    context = TrackerContext(tmp_path, 10, settings={"bearer_env": "JUDGE_KEY"})
    with Trackers(["tensorboard"], context) as trackers:
        trackers.log(6, {"a": 1.0})
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    texts = [path.read_bytes().decode(errors="ignore") for path in written]
    assert len(texts) == 2
    for text in texts:
        assert "*** \\" in text
        assert key[:5] not in text

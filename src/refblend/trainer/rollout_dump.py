"""``rollouts/<step>.jsonl``: all responses of a step with their scores, one object per line."""

import json
from collections.abc import Sequence
from pathlib import Path

from refblend.files import atomic_path
from refblend.scoring.result import JudgeResult
from refblend.trainer.batch import Experience, PromptBatch, Rollout


def write_rollouts(
    path: Path, step: int, prompts: PromptBatch, rollout: Rollout, experience: Experience
) -> None:
    """Write the file atomically; without a judge its fields are null."""
    judged: Sequence[JudgeResult | None] = experience.quality or [None] * len(rollout.texts)
    lines = [
        {
            "step": step,
            "uid": prompts.uids[i],
            "sample": prompts.sample_index[i],
            "question": prompts.rows[i].question,
            "response": rollout.texts[i],
            "reward": float(experience.rule[i]),
            "acc": float(experience.accuracy[i]),
            "length": rollout.sequences.response_lengths[i],
            "judge_score": result.score if result else None,
            "judge_valid": result.valid if result else None,
            "judge_path": result.path if result else None,
            "judge_raw": result.raw if result else None,
        }
        for i, result in enumerate(judged)
    ]
    text = "\n".join(json.dumps(line, ensure_ascii=False) for line in lines)
    with atomic_path(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")

"""``rollouts/<step>.jsonl``: all responses of a step with their scores, one object per line.

The keys are described in docs/reference/files.md.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from refblend.files import atomic_path
from refblend.scoring.result import JudgeResult
from refblend.trainer.batch import Experience, PromptBatch, Rollout
from refblend.trainer.shaping import Blended


def write_rollouts(
    path: Path,
    step: int,
    prompts: PromptBatch,
    rollout: Rollout,
    experience: Experience,
    blended: Blended,
) -> None:
    """Write the file atomically; without a judge or a blend its fields are null."""
    judged: Sequence[JudgeResult | None] = experience.quality or [None] * len(rollout.texts)
    lines = [
        {
            "step": step,
            "uid": prompts.uids[i],
            "sample": prompts.sample_index[i],
            "question": prompts.rows[i].question,
            "ground_truth": prompts.rows[i].ground_truth,
            "response": rollout.texts[i],
            "reward": float(experience.rule[i]),
            "acc": float(experience.accuracy[i]),
            "length": rollout.sequences.response_lengths[i],
            "judge_score": result.score if result else None,
            "judge_valid": result.valid if result else None,
            "judge_path": result.path if result else None,
            "judge_raw": result.raw if result else None,
            "quality": None if blended.quality is None else float(blended.quality[i]),
            "weight": None if blended.weights is None else float(blended.weights[i]),
            "blended": float(blended.rewards[i].sum()),
        }
        for i, result in enumerate(judged)
    ]
    text = "\n".join(json.dumps(line, ensure_ascii=False) for line in lines)
    with atomic_path(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")

"""``rollouts/<step>.jsonl``: all responses of a step with their judgements, one object a line."""

import json
from collections.abc import Sequence
from pathlib import Path

from refblend.files import atomic_path
from refblend.scoring.result import JudgeResult
from refblend.trainer.batch import PromptBatch, Rollout, Scores


def write_rollouts(
    path: Path, step: int, prompts: PromptBatch, rollout: Rollout, scores: Scores
) -> None:
    """Write the file whole or not at all; without a judge its fields are null."""
    judged: Sequence[JudgeResult | None] = scores.quality or [None] * len(rollout.texts)
    lines = [
        {
            "step": step,
            "uid": prompts.uids[i],
            "sample": prompts.sample_index[i],
            "question": prompts.rows[i].question,
            "response": rollout.texts[i],
            "reward": float(scores.rule[i]),
            "acc": float(scores.accuracy[i]),
            "length": rollout.sequences.response_lengths[i],
            "judge_score": verdict.score if verdict else None,
            "judge_valid": verdict.valid if verdict else None,
            "judge_path": verdict.path if verdict else None,
            "judge_raw": verdict.raw if verdict else None,
        }
        for i, verdict in enumerate(judged)
    ]
    text = "\n".join(json.dumps(line, ensure_ascii=False) for line in lines)
    with atomic_path(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")

"""A run's directory, written by hand."""

import json
from pathlib import Path

CONFIG = {
    "actor_rollout_ref": {"model": {"path": "models/actor"}},
    "algorithm": {
        "adv_estimator": "grpo",
        "ref_quality_score": {
            "enable": True,
            "strategy": "linear",
            "max_weight": 0.3,
            "entropy_high_threshold": 1.0,
            "placement": "terminal",
            "scoring": {"model_path": "models/judge", "control": "none"},
        },
    },
    "trainer": {"seed": 7, "default_local_dir": "runs/a"},
}
VAL = "val-core/refblend/arithmetic/acc/mean@1"
METRICS = [
    {"step": 0, VAL: 0.25},
    {"step": 1, "critic/score/mean": 0.5, "actor/ref_quality/weight": 0.1, "actor/grad_norm": None},
    {"step": 2, "critic/score/mean": 0.75, "actor/ref_quality/weight": 0.2, VAL: 0.5},
]


def response(sample: int, **changes) -> dict:
    """By default right, and scored 0.5 with w = 0.2 on the last token: R' = 0.8 + 0.1."""
    plain = {
        "step": 2,
        "uid": 4,
        "sample": sample,
        "question": "3 + 4?",
        "ground_truth": "7",
        "response": f"answer {sample}",
        "reward": 1.0,
        "acc": 1.0,
        "length": 5,
        "judge_score": 0.5,
        "judge_valid": True,
        "judge_path": "text",
        "judge_raw": r"\box{0.5}",
        "quality": 0.5,
        "weight": 0.2,
        "blended": 0.9,
    }
    return plain | changes


RESPONSES = [
    response(0),
    response(1, reward=0.0, acc=0.0, judge_score=0.9, quality=0.9, blended=0.18),
    response(2, judge_score=1.0, quality=1.0, blended=1.0, judge_raw="</script><b>\u2028\x1b[31m"),
    response(3, reward=0.0, acc=0.0, judge_score=0.0, quality=0.0, blended=0.0),
]


def write_run(path: Path, config: dict = CONFIG, responses: dict | None = None) -> Path:
    (path / "rollouts").mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(config))
    write_lines(path / "metrics.jsonl", METRICS)
    summary = {"status": "finished", "steps": 2, "incidents": {"oom": 0, "judge_invalid": 3}}
    (path / "summary.json").write_text(json.dumps(summary))
    origin = {"git": {"commit": "0123456789", "dirty": True}, "totals": {"wall_time_s": 90.0}}
    (path / "provenance.json").write_text(json.dumps(origin))
    for step, lines in (responses or {2: RESPONSES}).items():
        write_lines(path / "rollouts" / f"{step}.jsonl", lines)
    return path


def write_lines(path: Path, lines: list[dict]) -> None:
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))

"""Training of the real model as `refblend train` does it: a step in bfloat16 with a guided judge,
and six with LoRA."""

import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from refblend.data.schema import PromptRow, write_rows

pytestmark = [pytest.mark.real, pytest.mark.engine, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
PROMPTS, GROUP = 2, 2
SCORING = "algorithm.ref_quality_score.scoring"


def train(folder: Path, model: Path, *changes: str) -> Path:
    """A finished run of scale smollm with a tiny batch and untrained models."""
    for split in ("train", "validation"):
        rows = [
            PromptRow(k, "sums", [{"role": "user", "content": q}], q, str(11 * k + 3), "")
            for k, q in ((k, f"What is {10 * k} + {k + 3}?") for k in range(4))
        ]
        write_rows(folder / f"{split}.parquet", rows)
    run = folder / "run"
    overrides = [
        f"data.train_files=['{folder}/train.parquet']",
        f"data.val_files=['{folder}/validation.parquet']",
        "data.sanity_files=[]",
        f"data.train_batch_size={PROMPTS}",
        f"actor_rollout_ref.rollout.n={GROUP}",
        f"actor_rollout_ref.model.path={model}",
        "algorithm.adv_estimator=grpo",
        "trainer.val_before_train=false",
        "trainer.rollout_dump_freq=1",
        "trainer.energy=false",
        f"trainer.default_local_dir='{run}'",
        *changes,
    ]
    configs = [
        word
        for name in ("ppo.yaml", "scale/smollm.yaml")
        for word in ("--config", str(ROOT / "params" / name))
    ]
    command = [str(Path(sys.executable).with_name("refblend")), "train", *configs, *overrides]
    done = subprocess.run(
        command, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return run


@pytest.fixture(scope="module")
def run_dir(smollm_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("real run")
    yield train(
        folder,
        smollm_dir,
        # An untrained model has two nats, and may earn nothing but the judge's score.
        "algorithm.ref_quality_score.entropy_high_threshold=4.0",
        f"{SCORING}.model_path={smollm_dir}",
        f"{SCORING}.templates=default",
        f"reward.custom_reward_function.path={ROOT / 'scripts' / 'demo_reward.py'}",
        "trainer.total_training_steps=1",
    )
    shutil.rmtree(folder)  # a checkpoint has 1.6 GB


def test_a_step_in_bfloat16_is_finite_and_every_score_valid(run_dir: Path) -> None:
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1]
    step: dict[str, Any] = lines[0]
    missing = {name for name, value in step.items() if value is None}
    assert missing <= {"actor/ref_quality/auc", "actor/ref_quality/reward_length_corr"}
    assert all(math.isfinite(value) for value in step.values() if value is not None)
    assert step["actor/ref_quality/valid_rate"] == 1.0
    assert step["actor/grad_norm"] > 0.0
    assert 0.0 < step["training/rollout_probs_diff_max"] < 0.2, "bfloat16 on both sides"
    assert not any(value for name, value in step.items() if name.startswith("incidents/"))


def test_its_answers_and_its_checkpoint_are_there(run_dir: Path) -> None:
    dump = (run_dir / "rollouts" / "1.jsonl").read_text().splitlines()
    responses = [json.loads(line) for line in dump]
    assert len(responses) == PROMPTS * GROUP
    assert all(r["judge_valid"] and 0.0 <= r["judge_score"] <= 1.0 for r in responses)
    assert all("\\box{" in r["judge_raw"] for r in responses)
    weights = run_dir / "checkpoints" / "global_step_1" / "actor" / "model.safetensors"
    assert weights.stat().st_size > 500e6
    assert json.loads((run_dir / "summary.json").read_text())["status"] == "finished"


def test_an_adapter_learns(smollm_dir: Path, tmp_path: Path) -> None:
    """The reward is the share of digits; six steps of GRPO raise it."""
    run = train(
        tmp_path,
        smollm_dir,
        "algorithm.ref_quality_score.enable=false",
        f"reward.custom_reward_function.path={ROOT / 'benchmarks' / 'length_reward.py'}",
        "reward.custom_reward_function.name=reward",
        "actor_rollout_ref.model.lora_rank=16",
        "actor_rollout_ref.rollout.n=8",
        "actor_rollout_ref.actor.optim.lr=1.0e-3",
        "data.max_response_length=24",
        "trainer.total_training_steps=6",
        "trainer.save_freq=0",
    )
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    rewards = [line["critic/score/mean"] for line in lines]
    print("reward by step:", rewards)
    assert sum(rewards[-2:]) > sum(rewards[:2]) + 0.1

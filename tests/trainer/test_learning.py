"""Training teaches: each family of estimators raises the accuracy of a small warm-started actor.

One-step problems on the smoke architecture: the actor is warm-started well and then taught a sloppy
habit, so there is something to gain that a policy which ignores the question cannot reach.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from refblend.config.loading import merge
from refblend.data.schema import read_rows

pytestmark = [pytest.mark.engine, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
MARGIN = 0.1
"""Least gain over the warm start: over three standard errors of 256 sampled answers."""
EASY = {
    "data": {
        "validation_rows": 64,
        "difficulty": {
            "start_max": 4,
            "value_max": 9,
            "addend_max": 4,
            "factor_max": 2,
            "step_weights": [1.0, 0.0, 0.0],
        },
    },
    "actor": {
        "clean": {"steps": 400},
        "sloppy": {"learning_rate": 1e-3},
        "terse_share": 0.3,
        "wrong_step_probability": 0.5,
    },
}


def refblend(*arguments: object) -> None:
    command = [Path(sys.executable).with_name("refblend"), *map(str, arguments)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data, tokenizer and actor of the easy problems."""
    folder = tmp_path_factory.mktemp("learning")
    recipe: dict[str, Any] = yaml.safe_load((ROOT / "params/embedded/smoke.yaml").read_text())
    (folder / "recipe.yaml").write_text(yaml.safe_dump(merge(recipe, EASY)))
    common = ("--recipe", folder / "recipe.yaml")
    refblend("data", "prepare", *common, "--out", folder / "data")
    refblend("models", "tokenizer", *common, "--out", folder / "tokenizer")
    refblend(
        *("models", "actor", *common, "--tokenizer", folder / "tokenizer"),
        *("--out", folder / "actor", "--clean-out", folder / "clean"),
    )
    return folder


@pytest.mark.parametrize(
    "overrides",
    [
        ["algorithm.adv_estimator=gae", "trainer.critic_warmup=2"],
        ["algorithm.adv_estimator=grpo"],
        ["algorithm.adv_estimator=rloo"],
    ],
    ids=["gae", "grpo", "rloo"],
)
def test_accuracy_rises(bed, tmp_path, overrides):
    refblend(
        *("train", "--config", ROOT / "params/ppo.yaml"),
        *("--config", ROOT / "params/scale/smoke.yaml"),
        f"data.train_files=[{bed / 'data/train.parquet'}]",
        f"data.val_files=[{bed / 'data/validation.parquet'}]",
        "data.sanity_files=[]",
        "data.max_val_samples=null",
        "data.train_batch_size=32",
        f"actor_rollout_ref.model.path={bed / 'actor'}",
        "actor_rollout_ref.rollout.n=8",
        "actor_rollout_ref.rollout.val_kwargs.n=4",
        "actor_rollout_ref.actor.optim.lr=3e-4",
        "critic.optim.lr=1e-3",
        "algorithm.ref_quality_score.enable=false",
        "algorithm.use_kl_in_reward=false",
        "trainer.total_training_steps=20",
        "trainer.test_freq=20",
        "trainer.save_freq=0",
        "trainer.energy=false",
        f"trainer.default_local_dir={tmp_path / 'run'}",
        *overrides,
    )
    lines = [json.loads(x) for x in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    rows = read_rows(bed / "data/validation.parquet")
    answers = Counter(row.ground_truth for row in rows)
    blind = answers.most_common(1)[0][1] / len(rows)
    for name in (
        "val-core/refblend/arithmetic/acc/mean@1",
        "val-aux/refblend/arithmetic/acc/mean@4",
    ):
        start, end = lines[0][name], lines[-1][name]
        print(f"{name}: {start:.3f} -> {end:.3f}; the most common answer {blind:.3f}")
        assert end > start + MARGIN
        assert end > blind + MARGIN

"""GRPO with TRL 1.16, blended with a judge's score.

Runs on two CPU cores with the models of ``make prepare``::

    make prepare .tools/trl
    PYTHONPATH=src .tools/trl/bin/python examples/trl_grpo.py --scale smoke --steps 4

It prints TRL's metrics, among them ``actor/ref_quality/weight`` (w) and
``actor/ref_quality/avg_entropy``, step by step.
"""

import argparse
from typing import Any

import pandas as pd
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig

from refblend import Judge, WeightParams
from refblend.integrations.trl import BlendedGRPOTrainer, JudgeReward
from refblend.rewards.gsm8k import compute_score


def load_problems(file: str) -> Dataset:
    """Prompt (chat messages), question and gold answer of each row of a prompt file."""
    rows = pd.read_parquet(file).to_dict("records")
    return Dataset.from_list(
        [
            {
                "prompt": list(row["prompt"]),
                "question": row["extra_info"]["question"],
                "gold": row["reward_model"]["ground_truth"],
            }
            for row in rows
        ]
    )


def correct(completions: list[Any], gold: list[str], **_: Any) -> list[float]:
    """The rule reward R: 1 where the last number of the answer is the gold one."""
    texts = [completion[0]["content"] for completion in completions]
    return [compute_score(text, gold, "flexible") for text, gold in zip(texts, gold, strict=True)]


def settings(steps: int, output: str) -> GRPOConfig:
    """8 prompts with 4 responses each in every step, on the CPU."""
    return GRPOConfig(
        output_dir=output,
        use_cpu=True,
        bf16=False,
        max_steps=steps,
        per_device_train_batch_size=32,
        num_generations=4,
        max_completion_length=60,
        temperature=1.0,
        beta=0.0,
        learning_rate=1e-4,
        lr_scheduler_type="constant",
        gradient_checkpointing=False,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        seed=1,
    )


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", default="smoke", help="whose data and models")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--output", default="runs/trl")
    options = parser.parse_args()
    actor = f"models/{options.scale}/actor"
    with Judge.open(f"models/{options.scale}/judge_medium", engine="hf") as judge:
        trainer = BlendedGRPOTrainer(
            model=AutoModelForCausalLM.from_pretrained(actor, dtype=torch.float32),
            processing_class=AutoTokenizer.from_pretrained(actor),
            reward_funcs=correct,
            judge=JudgeReward(judge, question_column="question"),
            strategy="constant",  # "linear" and others read the actor's entropy
            weight_params=WeightParams(max_weight=0.45),
            args=settings(options.steps, options.output),
            train_dataset=load_problems(f"data/{options.scale}/train.parquet"),
        )
        trainer.train()


if __name__ == "__main__":
    main()

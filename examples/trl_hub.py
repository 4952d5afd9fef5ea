"""A model of the Hugging Face hub, trained with TRL and the blend: 40 lines to copy.

pip install '.[trl]'          # in a clone
python examples/trl_hub.py    # downloads an actor, a judge and GSM8K; needs a GPU for useful speed
"""

import argparse
import re

from datasets import load_dataset
from trl import GRPOConfig

from refblend import Judge, WeightParams
from refblend.integrations.trl import BlendedGRPOTrainer, JudgeReward


def last_number(text: str) -> str | None:
    """The last number that a text names."""
    found = re.findall(r"-?\d[\d,]*\.?\d*", text)
    return found[-1].replace(",", "").rstrip(".") if found else None


def correct(completions: list, gold: list[str], **_: object) -> list[float]:
    """The rule reward R: 1 where the last number is the gold one."""
    return [
        float(last_number(c[0]["content"]) == g) for c, g in zip(completions, gold, strict=True)
    ]


def prompt(row: dict) -> dict:
    """The columns that trainer and judge read."""
    return {
        "prompt": [{"role": "user", "content": row["question"]}],
        "gold": last_number(row["answer"]),
    }


parser = argparse.ArgumentParser()
parser.add_argument("--actor", default="Qwen/Qwen2.5-0.5B-Instruct")
parser.add_argument("--judge", required=True, help="folder of a downloaded judge")
parser.add_argument("--steps", type=int, default=100)
options = parser.parse_args()
with Judge.open(options.judge, engine="hf") as judge:
    BlendedGRPOTrainer(
        model=options.actor,
        reward_funcs=[correct],
        judge=JudgeReward(judge, placement="terminal", question_column="question"),
        strategy="constant",  # "linear" and others follow the actor's entropy
        weight_params=WeightParams(max_weight=0.3),
        args=GRPOConfig(output_dir="runs/trl_hub", max_steps=options.steps, seed=1),
        train_dataset=load_dataset("openai/gsm8k", "main", split="train").map(prompt),
    ).train()

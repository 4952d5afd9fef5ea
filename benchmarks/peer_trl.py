"""TRL's GRPOTrainer on a job file; run by ``peers.py`` in TRL's own environment.

Prints one JSON line: CPU and wall seconds and tokens of each measured batch of prompts, and the
curves of all.
"""

import json
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

job = json.loads(Path(sys.argv[1]).read_text())
torch.set_num_threads(job["threads"])
UPDATES = job["updates_per_batch"]
RESPONSES = job["prompts"] * job["group"]
WARM = job["warm"]
marks: list[tuple[float, float]] = []
lengths: list[int] = []
rewards: list[float] = []


def digits(
    completions: list[list[dict[str, str]]], completion_ids: list[list[int]], **_: Any
) -> list[float]:
    """Share of digits in the text, as in ``length_reward.py``; records lengths and rewards."""
    lengths.append(sum(map(len, completion_ids)))
    texts = [c[0]["content"] for c in completions]
    found = [sum(x.isdigit() for x in t) / max(1, len(t)) for t in texts]
    rewards.append(sum(found) / len(found))
    return found


class Clock(TrainerCallback):
    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step % UPDATES == 0:
            marks.append((time.process_time(), time.perf_counter()))


tokenizer = AutoTokenizer.from_pretrained(job["model"])
trainer = GRPOTrainer(
    model=AutoModelForCausalLM.from_pretrained(job["model"], dtype=torch.float32),
    reward_funcs=digits,
    processing_class=tokenizer,
    train_dataset=Dataset.from_list(
        [{"prompt": [{"role": "user", "content": q}]} for q in job["questions"]]
    ),
    callbacks=[Clock()],
    args=GRPOConfig(
        output_dir=job["output"],
        use_cpu=True,
        bf16=job["dtype"] == "bfloat16",
        max_steps=job["batches"] * UPDATES,
        generation_batch_size=RESPONSES,
        per_device_train_batch_size=job["micro_batch"],
        gradient_accumulation_steps=RESPONSES // UPDATES // job["micro_batch"],
        num_generations=job["group"],
        max_completion_length=job["max_new_tokens"],
        temperature=1.0,
        beta=0.0,
        learning_rate=job["lr"],
        lr_scheduler_type="constant",
        gradient_checkpointing=False,
        save_strategy="no",
        report_to="none",
        logging_strategy="no",
        disable_tqdm=True,
        seed=1,
    ),
)
trainer.train()
cpu, wall = zip(*marks, strict=True)
print(
    "\n"
    + json.dumps(
        {
            "cpu_seconds": [b - a for a, b in pairwise(cpu)][WARM - 1 :],
            "wall_seconds": [b - a for a, b in pairwise(wall)][WARM - 1 :],
            "response_tokens": lengths[WARM:],
            "curve_tokens": lengths,
            "curve_reward": rewards,
        }
    )
)

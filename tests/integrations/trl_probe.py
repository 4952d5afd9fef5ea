"""Trains with TRL in TRL's own environment and prints, as one JSON line, what it saw.

Its argument is the job, JSON with ``model``, ``rows``, ``output``, ``placement``, ``steps``,
``blend``, ``dropout``, ``method``, ``entropy_level`` and ``unscored``: whether the rule passes over
responses of a length divisible by 3.

The judge is a formula, so that the test knows its scores without asking it.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from refblend import JudgeResult, WeightParams
from refblend.errors import RefblendError
from refblend.integrations.trl import BlendedGRPOTrainer, JudgeReward
from refblend.scoring.judge import Judge

job = json.loads(sys.argv[1])
seen: list[dict[str, Any]] = []
judged: list[tuple[str, str]] = []


class FormulaJudge(Judge):
    """Score: characters of the response modulo 11, over 10; an odd number of words is invalid."""

    @classmethod
    def check(cls, config: Any) -> None: ...

    @classmethod
    def start(cls, config: Any, seed: int) -> Judge:
        return cls()

    def score(self, questions: Any, responses: Any, seeds: Any = None) -> list[JudgeResult]:
        judged.extend(zip(questions, responses, strict=True))
        return [
            JudgeResult(0.5, False, "default")
            if len(text.split()) % 2
            else JudgeResult(len(text) % 11 / 10, True, "text")
            for text in responses
        ]


def of_scored(measure: Callable[[str], float], completions: list[Any]) -> list[float | None]:
    texts = [item[0]["content"] for item in completions]
    return [None if job["unscored"] and len(t) % 3 == 0 else measure(t) for t in texts]


def digits(completions: list[Any], **_: Any) -> list[float | None]:
    return of_scored(lambda text: sum(c.isdigit() for c in text), completions)


def spaces(completions: list[Any], **_: Any) -> list[float | None]:
    return of_scored(lambda text: text.count(" "), completions)


class Recording:
    """Notes every batch and the weights that the model has when it is scored."""

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        output = super()._generate_and_score_completions(inputs)
        folder = f"{job['output']}/weights_{len(seen)}"
        self.model.save_pretrained(folder)
        metrics = {name: values[-1] for name, values in self._metrics["train"].items()}
        seen.append(
            {
                "prompt_ids": [
                    ids[mask.bool()].tolist()
                    for ids, mask in zip(output["prompt_ids"], output["prompt_mask"], strict=True)
                ],
                "completion_ids": [
                    ids[mask.bool()].tolist()
                    for ids, mask in zip(
                        output["completion_ids"], output["completion_mask"], strict=True
                    )
                ],
                "advantages": output["advantages"].tolist(),
                "reward_weights": self.reward_weights.tolist(),
                "functions": self.reward_func_names,
                "reward": metrics["reward"],
                "weights": folder,
            }
        )
        return output


class Blended(Recording, BlendedGRPOTrainer): ...


class Stock(Recording, GRPOTrainer): ...


common: dict[str, Any] = {
    "model": AutoModelForCausalLM.from_pretrained(
        job["model"], dtype=torch.float32, attention_dropout=job["dropout"]
    ),
    "processing_class": AutoTokenizer.from_pretrained(job["model"]),
    "reward_funcs": [digits, spaces],
    "reward_processing_classes": [None, None],
    "train_dataset": Dataset.from_list(job["rows"]),
    "args": GRPOConfig(
        output_dir=job["output"],
        use_cpu=True,
        bf16=False,
        max_steps=job["steps"],
        per_device_train_batch_size=8,
        num_generations=4,
        max_completion_length=12,
        temperature=job["temperature"],
        beta=0.0,
        learning_rate=1e-3,
        lr_scheduler_type="constant",
        gradient_checkpointing=False,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        log_completions=True,
        disable_tqdm=True,
        reward_weights=[1.0, 0.25],
        seed=1,
        max_grad_norm=1.0,
    ),
}
if job["blend"]:
    trainer = Blended(
        judge=JudgeReward(FormulaJudge(), job["placement"], "question", max_invalid_rate=1.0),
        strategy="linear",
        weight_params=WeightParams(max_weight=job["max_weight"], entropy_high_threshold=8.0),
        method=job["method"],
        entropy_level=job["entropy_level"],
        **common,
    )
else:
    trainer = Stock(**common)
trainer.train()


def refusal(rows: list[dict[str, Any]], stock: bool) -> str:
    """How rows without a question are refused: by stock TRL in a batch, by ours before a step."""
    reward = JudgeReward(FormulaJudge(), question_column="question", max_invalid_rate=1.0)
    try:
        if stock:
            columns = {"question": [row["question"] for row in rows]}
            reward([row["prompt"] for row in rows], ["a"] * len(rows), [[1]] * len(rows), **columns)
        else:
            data = Dataset.from_list(rows)
            BlendedGRPOTrainer(judge=reward, **common | {"train_dataset": data})
    except RefblendError as error:
        return f"{type(error).__name__}: {error}"
    return "accepted"


broken = [
    row | {"question": None if n == 3 else row["question"]} for n, row in enumerate(job["rows"])
]
found = {
    "batches": seen,
    "judged": judged,
    "log": trainer.state.log_history,
    "refused": [refusal(broken, True), refusal(broken, False)],
}
print("\n" + json.dumps(found))

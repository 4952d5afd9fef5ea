"""Actor and engine of a run in one process, and a batch that goes through them."""

import math
import os
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from refblend.config import RefblendConfig, load_config
from refblend.data.schema import PromptRow, write_rows
from refblend.data.tokenizer import encode_chat
from refblend.embedded.architecture import qwen_tokenizer, write_stand_in
from refblend.rewards.rule import RuleReward
from refblend.rollout.base import GenerationRequest
from refblend.rollout.factory import start_rollout
from refblend.workers.fsdp_workers import ActorWorker
from refblend.workers.types import MiniBatch, PolicyTargets, Sequences, response_mask

TOLERANCE = {"cpu": 1e-3, "cuda": 0.15}
"""Largest mean gap of log-probs between trainer and engine, in nats: float32, bfloat16."""


def under(key: str, **values: Any) -> list[str]:
    """Overrides of keys below ``key``."""
    return [f"{key}.{name}={value}" for name, value in values.items()]


class Chain:
    """Actor, engine and one batch, without Ray; model and rows are written to a folder.

    ``device`` is cpu or cuda; a ``tiny`` model has two million parameters, not half a billion.
    """

    prompts, answers, length = 8, 4, 64

    def __init__(self, folder: Path, device: str, tiny: bool) -> None:
        self.device, self.folder = device, folder
        self.questions = [f"What is {a} + {a * 7}? Say the number." for a in range(self.prompts)]
        rows = [
            PromptRow(i, "openai/gsm8k", [{"role": "user", "content": q}], q, str(8 * i), "")
            for i, q in enumerate(self.questions)
        ]
        write_rows(folder / "rows.parquet", rows)
        self.model = folder / "model"
        self.tokenizer = qwen_tokenizer(self.questions, 400)
        write_stand_in(self.model, self.tokenizer, 0, tiny)
        on_gpu = device == "cuda"
        dtype, files = "bfloat16" if on_gpu else "float32", f"[{folder / 'rows.parquet'}]"
        policy, scoring = "actor_rollout_ref", "algorithm.ref_quality_score.scoring"
        self._settings = [
            *under("data", train_files=files, val_files=files, max_response_length=self.length),
            *under("data", train_batch_size=self.prompts, max_val_samples=4),
            *under(f"{policy}.rollout", name="hf", n=self.answers, max_model_len=512, dtype=dtype),
            *under(scoring, model_path=self.model, max_invalid_rate=1.0),
            *under(f"{policy}.actor.fsdp_config", param_dtype=dtype, num_threads=os.cpu_count()),
            f"{policy}.actor.fsdp_config.num_gpus_per_worker={float(on_gpu)}",
            f"{policy}.actor.optim.lr=1.0e-5",
            f"{policy}.model.path={self.model}",
        ]
        self.config = self.configured()

    def configured(self, *overrides: str) -> RefblendConfig:
        """The chain's configuration with some keys changed."""
        return load_config([], [*self._settings, *overrides])

    def start(self) -> None:
        """Process group of one rank, actor and rollout engine."""
        if self.device == "cpu":  # as on a GPU, where the actor makes a group itself
            dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        self.actor = ActorWorker(self.config, 2)
        self.engine = start_rollout(self.config, str(self.model))
        self.parameters = sum(p.numel() for p in self.actor.network.parameters())

    def rollout(self, step: int) -> Sequences:
        """Responses to every prompt, as sequences; ``generations`` keeps the engine's log-probs."""
        prompts = [
            encode_chat(self.tokenizer, [{"role": "user", "content": question}])
            for question in self.questions
            for _ in range(self.answers)
        ]
        requests = [
            GenerationRequest(ids, self.length, seed=100 * step + number)
            for number, ids in enumerate(prompts)
        ]
        self.generations = self.engine.generate(requests)
        return Sequences(prompts, [list(found.token_ids) for found in self.generations])

    def train_step(self, step: int) -> float:
        """One step from rollout to weight push; the mean gap of log-probs before the update.

        AssertionError for other weights in engine and trainer, or gradients that are not finite.
        """
        sequences = self.rollout(step)
        rows = len(sequences)
        plan = [list(range(i, min(i + 8, rows))) for i in range(0, rows, 8)]
        _, (log_probs, _) = self.actor.compute_log_prob(sequences, plan)
        gap = statistics.fmean(
            abs(ours - theirs)
            for row, generation in zip(log_probs.tolist(), self.generations, strict=True)
            for ours, theirs in zip(row, generation.log_probs, strict=False)
        )
        assert gap < TOLERANCE[self.device], f"log-probs of engine and trainer differ by {gap:.4f}"
        reward = RuleReward()
        texts = [self.tokenizer.decode(ids) for ids in sequences.response_ids]
        golds = [str(8 * i) for i in range(self.prompts) for _ in range(self.answers)]
        given = zip(texts, golds, strict=True)
        scores = [reward("openai/gsm8k", text, gold).score for text, gold in given]
        mask = response_mask(sequences.response_lengths, sequences.response_width)
        noise = torch.randn(mask.shape, generator=torch.Generator().manual_seed(step))
        targets = PolicyTargets(mask, log_probs, (noise + torch.tensor(scores)[:, None]) * mask)
        mini = MiniBatch(plan, float(mask.sum()), rows)
        metrics = self.actor.update(sequences, targets, [mini], step)
        assert math.isfinite(metrics["grad_norm"]), f"gradient norm {metrics['grad_norm']}"
        self.engine.load_weights(self.actor.full_weights(), step)
        return gap

    def pass_of(self, tokens: int, width: int, update: bool) -> tuple[Callable[[], Any], int]:
        """A log-prob pass or an update over about so many tokens in one micro-batch; and tokens."""
        rows = max(1, tokens // width)
        drawn = torch.randint(
            3, len(self.tokenizer), (rows, width), generator=torch.Generator().manual_seed(0)
        )
        half = width // 2
        sequences = Sequences(drawn[:, :half].tolist(), drawn[:, half:].tolist())
        plan = [list(range(rows))]
        if not update:
            return lambda: self.actor.compute_log_prob(sequences, plan), rows * width
        mask = response_mask(sequences.response_lengths, sequences.response_width)
        targets = PolicyTargets(mask, torch.zeros(mask.shape), torch.ones(mask.shape) * mask)
        mini = MiniBatch(plan, float(mask.sum()), rows)
        return lambda: self.actor.update(sequences, targets, [mini], 1), rows * width

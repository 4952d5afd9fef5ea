"""The workers of the controller: actor, critic, reference policy, rollout engine and judge.

Each is a plain class that can be used without Ray, in one process or as one rank of an FSDP
group. A rank is given all sequences and the plan of its micro-batches, and answers for its rows.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from refblend import runtime
from refblend.config import RefblendConfig
from refblend.config.actor_rollout_ref import FsdpConfig
from refblend.ppo.kl import kl_penalty
from refblend.ppo.losses import agg_loss, compute_policy_loss, compute_value_loss
from refblend.rollout.base import (
    EngineOptions,
    Generation,
    GenerationRequest,
    RolloutEngine,
    start_engine,
)
from refblend.scoring.judge import CallStats, Judge, JudgeOptions
from refblend.scoring.result import JudgeResult
from refblend.scoring.templates import load_templates
from refblend.seeding import derive_seed
from refblend.workers import distributed
from refblend.workers.networks import (
    PolicyNetwork,
    load_policy,
    load_value,
    pad_batch,
    scatter_tokens,
)
from refblend.workers.optimization import Trainable, mean_over_steps
from refblend.workers.shards import ShardResult
from refblend.workers.types import MiniBatch, PolicyTargets, Sequences, ValueTargets


def _prepare_process(num_threads: int) -> None:
    runtime.configure_process(num_threads)
    torch.set_num_threads(num_threads)


class _PolicyForward:
    """Forward passes that actor and reference policy share."""

    policy: PolicyNetwork
    device: torch.device

    @torch.no_grad()
    def compute_log_prob(self, sequences: Sequences, plan: list[list[int]]) -> ShardResult:
        """Log-probs and entropies of this rank's rows.

        Args:
            sequences: the whole batch.
            plan: row numbers of each micro-batch of this rank.
        """
        width = sequences.response_width
        rows = [row for micro_batch in plan for row in micro_batch]
        parts: list[tuple[Tensor, Tensor]] = []
        for micro_batch in plan:
            batch = pad_batch(sequences, micro_batch or [0], self.device)
            with self._precision():
                log_probs, entropy = self.policy(batch)
            if micro_batch:
                shape = (len(micro_batch), width)
                parts.append(
                    (
                        scatter_tokens(log_probs, batch, *shape).cpu(),
                        scatter_tokens(entropy, batch, *shape).cpu(),
                    )
                )
        if not parts:
            return rows, torch.zeros(0, width), torch.zeros(0, width)
        return rows, torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])

    fsdp: FsdpConfig

    def _precision(self) -> AbstractContextManager[Any]:
        return distributed.precision(self.fsdp)


class ActorWorker(_PolicyForward):
    """One rank of the policy that is trained."""

    def __init__(
        self, config: RefblendConfig, total_steps: int, rank: int = 0, address: str = ""
    ) -> None:
        self.config = config.actor_rollout_ref.actor
        self._norm_length = float(config.data.max_response_length)
        self.fsdp = fsdp = self.config.fsdp_config
        _prepare_process(fsdp.num_threads)
        distributed.init_process_group(rank, fsdp, address, config.trainer.worker_timeout_s)
        self.device = distributed.pick_device(fsdp)
        self._model = config.actor_rollout_ref.model
        self._temperature = config.actor_rollout_ref.rollout.temperature
        self._total_steps = total_steps
        self._build(self._model.path)

    def _build(self, path: str) -> None:
        self.policy = load_policy(
            path,
            self._temperature,
            checkpointing=self._model.enable_gradient_checkpointing,
            trust_remote_code=self._model.trust_remote_code,
        )
        distributed.shard(self.policy, self.config.fsdp_config)
        self.trainable = Trainable(self.policy, self.config, self._total_steps)

    def update(
        self,
        sequences: Sequences,
        targets: PolicyTargets,
        mini_batches: Sequence[MiniBatch],
        training_step: int,
    ) -> dict[str, float]:
        """One or more PPO updates; returns the ``actor/*`` figures without their prefix."""
        steps = [
            self.trainable.step(
                mini.micro_batches,
                lambda rows, m=mini: self._loss(sequences, targets, rows, m),  # type: ignore[misc]
                training_step,
            )
            for mini in mini_batches
        ]
        return mean_over_steps(steps)

    def _loss(
        self, sequences: Sequences, targets: PolicyTargets, rows: list[int], mini: MiniBatch
    ) -> tuple[Tensor, dict[str, float]]:
        cfg = self.config
        batch = pad_batch(sequences, rows, self.device)
        shape = (len(rows), sequences.response_width)
        token_log_probs, token_entropy = self.policy(batch)
        log_probs = scatter_tokens(token_log_probs, batch, *shape)
        # Without an entropy bonus nothing is learned from it: spare its backward pass.
        bonus = cfg.entropy_coeff != 0.0
        entropy = scatter_tokens(token_entropy if bonus else token_entropy.detach(), batch, *shape)
        part: Any = targets.select(rows)
        mask = part.response_mask.to(self.device)
        old = part.old_log_probs.to(self.device)
        scale: dict[str, Any] = {
            "loss_agg_mode": cfg.loss_agg_mode,
            "batch_num_tokens": mini.num_tokens,
            "global_batch_size": mini.num_sequences,
            "loss_scale_factor": self._norm_length,
        }
        weights = part.importance_weights
        policy = compute_policy_loss(
            old_log_prob=old,
            log_prob=log_probs,
            advantages=part.advantages.to(self.device),
            response_mask=mask,
            cliprange_low=cfg.clip_ratio_low or cfg.clip_ratio,
            cliprange_high=cfg.clip_ratio_high or cfg.clip_ratio,
            clip_ratio_c=cfg.clip_ratio_c,
            importance_weights=None if weights is None else weights.to(self.device),
            **scale,
        )
        entropy_loss = agg_loss(entropy, mask, **scale)
        loss = policy.loss - cfg.entropy_coeff * entropy_loss
        figures = {
            "pg_loss": policy.loss.item(),
            "pg_clipfrac": float(policy.clipfrac),
            "pg_clipfrac_lower": float(policy.clipfrac_lower),
            "ppo_kl": float(policy.ppo_kl),
            "entropy": entropy_loss.item(),
        }
        if cfg.use_kl_loss:
            reference = part.ref_log_probs.to(self.device)
            kl_loss = agg_loss(kl_penalty(log_probs, reference, cfg.kl_loss_type), mask, **scale)
            loss = loss + cfg.kl_loss_coef * kl_loss
            figures["kl_loss"] = kl_loss.item()
        return loss, figures

    def full_weights(self) -> dict[str, Tensor]:
        """All weights for the rollout engine (empty on ranks other than 0)."""
        return distributed.full_state(self.policy)

    def save(self, directory: str) -> None:
        """Write model and optimiser."""
        self.trainable.save(Path(directory))

    def load(self, directory: str) -> None:
        """Continue from what :meth:`save` wrote."""
        self._build(directory)
        self.trainable.load_optimizer(Path(directory))


class CriticWorker:
    """One rank of the value model."""

    def __init__(
        self, config: RefblendConfig, total_steps: int, rank: int = 0, address: str = ""
    ) -> None:
        self.config = config.critic
        self._norm_length = float(config.data.max_response_length)
        fsdp = self.config.fsdp_config
        _prepare_process(fsdp.num_threads)
        distributed.init_process_group(rank, fsdp, address, config.trainer.worker_timeout_s)
        self.device = distributed.pick_device(fsdp)
        self._model = config.actor_rollout_ref.model
        self._total_steps = total_steps
        self._build(self._model.path)

    def _build(self, path: str) -> None:
        self.value = load_value(
            path,
            checkpointing=self._model.enable_gradient_checkpointing,
            trust_remote_code=self._model.trust_remote_code,
        )
        distributed.shard(self.value, self.config.fsdp_config)
        self.trainable = Trainable(self.value, self.config, self._total_steps)

    @torch.no_grad()
    def compute_values(self, sequences: Sequences, plan: list[list[int]]) -> ShardResult:
        """Values of this rank's rows; the second matrix repeats the first."""
        width = sequences.response_width
        rows = [row for micro_batch in plan for row in micro_batch]
        parts: list[Tensor] = []
        for micro_batch in plan:
            batch = pad_batch(sequences, micro_batch or [0], self.device)
            with distributed.precision(self.config.fsdp_config):
                values = self.value(batch)
            if micro_batch:
                parts.append(scatter_tokens(values, batch, len(micro_batch), width).cpu())
        merged = torch.cat(parts) if parts else torch.zeros(0, width)
        return rows, merged, merged

    def update(
        self,
        sequences: Sequences,
        targets: ValueTargets,
        mini_batches: Sequence[MiniBatch],
        training_step: int,
    ) -> dict[str, float]:
        """One or more value updates; returns the ``critic/*`` figures without their prefix."""
        steps = [
            self.trainable.step(
                mini.micro_batches,
                lambda rows, m=mini: self._loss(sequences, targets, rows, m),  # type: ignore[misc]
                training_step,
            )
            for mini in mini_batches
        ]
        return mean_over_steps(steps)

    def _loss(
        self, sequences: Sequences, targets: ValueTargets, rows: list[int], mini: MiniBatch
    ) -> tuple[Tensor, dict[str, float]]:
        batch = pad_batch(sequences, rows, self.device)
        vpreds = scatter_tokens(self.value(batch), batch, len(rows), sequences.response_width)
        part: Any = targets.select(rows)
        mask = part.response_mask.to(self.device)
        loss, clipfrac = compute_value_loss(
            vpreds=vpreds,
            returns=part.returns.to(self.device),
            values=part.values.to(self.device),
            response_mask=mask,
            cliprange_value=self.config.cliprange_value,
            loss_agg_mode=self.config.loss_agg_mode,
            batch_num_tokens=mini.num_tokens,
            global_batch_size=mini.num_sequences,
            loss_scale_factor=self._norm_length,
        )
        return loss, {"vf_loss": loss.item(), "vf_clipfrac": float(clipfrac)}

    def save(self, directory: str) -> None:
        """Write model and optimiser."""
        self.trainable.save(Path(directory))

    def load(self, directory: str) -> None:
        """Continue from what :meth:`save` wrote."""
        self._build(directory)
        self.trainable.load_optimizer(Path(directory))


class ReferenceWorker(_PolicyForward):
    """One rank of the frozen starting policy."""

    def __init__(
        self, config: RefblendConfig, total_steps: int, rank: int = 0, address: str = ""
    ) -> None:
        del total_steps  # the signature of every training group's rank
        self.fsdp = config.actor_rollout_ref.ref.fsdp_config
        _prepare_process(self.fsdp.num_threads)
        distributed.init_process_group(rank, self.fsdp, address, config.trainer.worker_timeout_s)
        self.device = distributed.pick_device(self.fsdp)
        model = config.actor_rollout_ref.model
        self.policy = load_policy(
            model.path,
            config.actor_rollout_ref.rollout.temperature,
            trust_remote_code=model.trust_remote_code,
        )
        distributed.shard(self.policy.requires_grad_(False), self.fsdp)

    @torch.no_grad()
    def compute_pooled_states(self, sequences: Sequences, plan: list[list[int]]) -> ShardResult:
        """Mean hidden state (rows, H) of each response; the second matrix repeats the first."""
        rows = [row for micro_batch in plan for row in micro_batch]
        parts: list[Tensor] = []
        for micro_batch in plan:
            batch = pad_batch(sequences, micro_batch or [0], self.device)
            with self._precision():
                states, _ = self.policy(batch, pooled=True)
            if micro_batch:
                parts.append(states.cpu())
        merged = torch.cat(parts) if parts else torch.zeros(0, self.policy.lm.config.hidden_size)
        return rows, merged, merged


class RolloutWorker:
    """The engine that generates the actor's responses."""

    def __init__(self, config: RefblendConfig) -> None:
        rollout = config.actor_rollout_ref.rollout
        _prepare_process(rollout.num_threads)
        self.engine: RolloutEngine = start_engine(
            rollout.name,
            EngineOptions(
                model_path=config.actor_rollout_ref.model.path,
                max_model_len=rollout.max_model_len,
                dtype=rollout.dtype,
                kv_cache_memory_mb=rollout.kv_cache_memory_mb,
                gpu_memory_utilization=rollout.gpu_memory_utilization,
                tensor_parallel_size=rollout.tensor_model_parallel_size,
                enforce_eager=rollout.enforce_eager,
                enable_prefix_caching=rollout.enable_prefix_caching,
                seed=rollout.seed or derive_seed(config.trainer.seed, "rollout engine"),
            ),
        )

    def generate(self, requests: Sequence[GenerationRequest]) -> list[Generation]:
        """Answer all requests with the present weights."""
        return self.engine.generate(requests)

    def load_weights(self, weights: dict[str, Tensor], version: int) -> None:
        """Take over the actor's weights after its update."""
        self.engine.load_weights(weights, version)


class JudgeWorker:
    """The reference model that judges every response (spec, section 2)."""

    def __init__(self, config: RefblendConfig) -> None:
        from transformers import AutoTokenizer

        quality = config.algorithm.ref_quality_score
        scoring = quality.scoring
        _prepare_process(scoring.num_threads)
        assert scoring.model_path is not None, "checked by the configuration"
        self.engine = start_engine(
            "vllm",
            EngineOptions(
                model_path=scoring.model_path,
                max_model_len=scoring.max_model_len,
                dtype=scoring.dtype,
                kv_cache_memory_mb=scoring.kv_cache_memory_mb,
                gpu_memory_utilization=scoring.gpu_memory_utilization,
                seed=derive_seed(config.trainer.seed, "judge engine"),
            ),
        )
        tokenizer = AutoTokenizer.from_pretrained(scoring.model_path)
        self.judge = Judge(
            self.engine,
            tokenizer,
            load_templates(scoring.templates),
            JudgeOptions.from_config(
                quality, self.engine.max_model_len, tokenizer.model_max_length
            ),
        )

    def generate_quality_score(
        self, questions: Sequence[str], responses: Sequence[str], seeds: Sequence[int]
    ) -> list[JudgeResult]:
        """Judge every response; failures come back as results, never as a score of 0."""
        return self.judge.score(questions, responses, seeds)

    def last_call(self) -> CallStats:
        """Figures of the last batch: tokens, seconds, prefix-cache hit rate."""
        return self.judge.last_call

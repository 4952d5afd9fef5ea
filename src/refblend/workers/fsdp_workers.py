"""The workers of the controller: actor, critic, reference policy, rollout engine and judge.

Each is a plain class that can be used without Ray, in one process or as one rank of an FSDP
group (:mod:`refblend.workers.ranks`).
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from refblend.config import RefblendConfig
from refblend.config.actor_rollout_ref import ActorConfig, CriticConfig
from refblend.ppo.kl import kl_penalty
from refblend.ppo.losses import agg_loss, compute_policy_loss, compute_value_loss
from refblend.seeding import derive_seed
from refblend.workers import distributed, lora
from refblend.workers.distributed import Address
from refblend.workers.engine_workers import JudgeWorker, RolloutWorker
from refblend.workers.layout import PaddedBatch, pad_batch, scatter_tokens
from refblend.workers.networks import PolicyNetwork, ValueNetwork, load_policy, load_value
from refblend.workers.ranks import Rank, TrainableRank
from refblend.workers.types import MiniBatch, PolicyTargets, Sequences, Shard, ValueTargets
from refblend.workers.weight_buffer import PackedWeights, WeightBuffer

__all__ = ["ActorWorker", "CriticWorker", "JudgeWorker", "ReferenceWorker", "RolloutWorker"]


class PolicyRank(Rank):
    """The forward pass that actor and reference policy share."""

    network: PolicyNetwork

    def compute_log_prob(self, sequences: Sequences, plan: list[list[int]]) -> Shard:
        """Log-probs and entropies (rows, T) of this rank's rows."""
        width = sequences.response_width

        def compute(batch: PaddedBatch, num_rows: int) -> list[Tensor]:
            return [scatter_tokens(v, batch, num_rows, width) for v in self.network(batch)]

        return self.each_micro_batch(sequences, plan, compute)

    def compute_pooled_states(self, sequences: Sequences, plan: list[list[int]]) -> Shard:
        """Mean hidden state (rows, H) of each response."""
        return self.each_micro_batch(
            sequences, plan, lambda batch, _: [self.network(batch, pooled=True)[0]]
        )


class ActorWorker(TrainableRank[PolicyTargets], PolicyRank):
    """One rank of the policy that is trained, either all weights or an adapter (LoRA)."""

    section = "actor_rollout_ref.actor"
    config: ActorConfig
    reference: PolicyNetwork
    """The frozen start; only with ``ref.colocated``."""

    def __init__(
        self, run: RefblendConfig, total_steps: int, rank: int = 0, address: Address | None = None
    ) -> None:
        super().__init__(run, total_steps - run.trainer.critic_warmup, rank, address)
        self._pushed = WeightBuffer()

    def load_network(self, path: str) -> PolicyNetwork:
        """The policy at the rollout temperature; with LoRA the base and a checkpoint's adapter."""
        if not self.model.lora_rank:
            return load_policy(path, self.temperature, **self.loading)
        policy = load_policy(self.model_path, self.temperature, **self.loading)
        lora.add_adapter(policy.lm, self.model, derive_seed(self.seed, "lora adapter"))
        if path != self.model_path:
            lora.load_adapter(policy.lm, Path(path) / lora.ADAPTER_DIR)
        return policy

    def build(self, path: str) -> None:
        """Load and shard the actor and, once, the reference policy that it holds."""
        super().build(path)
        if self.run.reference_in_actor and not (self.model.lora_rank or hasattr(self, "reference")):
            policy = load_policy(self.model_path, self.temperature, **self.loading)
            self.reference = distributed.shard(policy.requires_grad_(False), self.fsdp)

    def as_reference(self, sequences: Sequences, plan: list[list[int]], method: str) -> Shard:
        """A pass of :class:`PolicyRank`, named by its method, by the reference policy."""
        compute: Callable[..., Shard] = getattr(self, method)
        if self.model.lora_rank:
            with lora.adapter_off(self.network.lm):
                return compute(sequences, plan)
        trained, self.network = self.network, self.reference
        try:
            return compute(sequences, plan)
        finally:
            self.network = trained

    def loss(
        self, sequences: Sequences, targets: PolicyTargets, mini: MiniBatch, rows: list[int]
    ) -> tuple[Tensor, dict[str, float]]:
        """PPO's clipped loss, minus the entropy bonus, plus KL to the reference if asked for."""
        cfg = self.config
        batch = pad_batch(sequences, rows, self.device)
        shape = (len(rows), sequences.response_width)
        token_log_probs, token_entropy = self.network(batch)
        log_probs = scatter_tokens(token_log_probs, batch, *shape)
        # Without an entropy bonus nothing is learned from it: spare its backward pass.
        bonus = cfg.entropy_coeff != 0.0
        entropy = scatter_tokens(token_entropy if bonus else token_entropy.detach(), batch, *shape)
        part = targets.select(rows, self.device)
        mask = part.response_mask
        scale = self.scale(mini) | {"loss_agg_mode": cfg.loss_agg_mode}
        policy = compute_policy_loss(
            old_log_prob=part.old_log_probs,
            log_prob=log_probs,
            advantages=part.advantages,
            response_mask=mask,
            cliprange_low=cfg.clip_ratio_low or cfg.clip_ratio,
            cliprange_high=cfg.clip_ratio_high or cfg.clip_ratio,
            clip_ratio_c=cfg.clip_ratio_c,
            importance_weights=part.importance_weights,
            **scale,
        )
        mean_entropy = agg_loss(entropy, mask, **scale)
        loss = policy.loss - cfg.entropy_coeff * mean_entropy
        metrics = {
            "pg_loss": policy.loss.item(),
            "pg_clipfrac": float(policy.clipfrac),
            "pg_clipfrac_lower": float(policy.clipfrac_lower),
            "ppo_kl": float(policy.ppo_kl),
            "entropy": mean_entropy.item(),
        }
        if cfg.use_kl_loss:
            assert part.ref_log_probs is not None, "the reference runs whenever KL is asked for"
            divergence = kl_penalty(log_probs, part.ref_log_probs, cfg.kl_loss_type)
            kl_loss = agg_loss(divergence, mask, **scale)
            loss = loss + cfg.kl_loss_coef * kl_loss
            metrics["kl_loss"] = kl_loss.item()
        return loss, metrics

    def full_weights(self, dtype: torch.dtype | None = None) -> dict[str, Tensor]:
        """All weights under Hugging Face names, an adapter merged into them in float32."""
        if self.model.lora_rank:
            return lora.merged(super().full_weights(), self.model, dtype)
        return super().full_weights(dtype)

    def save(self, directory: str) -> None:
        """Write model and optimiser, and the adapter by itself: only this is exact."""
        super().save(directory)
        if self.model.lora_rank:
            state = distributed.full_state(self.network, trained_only=True)
            if distributed.is_main():
                lora.save_adapter(self.network.lm, state, Path(directory) / lora.ADAPTER_DIR)

    def pack_weights(self) -> PackedWeights | None:
        """Put the weights where the rollout engines read them (None on ranks other than 0)."""
        rollout = self.run.actor_rollout_ref.rollout
        dtype: torch.dtype = getattr(torch, rollout.dtype)
        if rollout.lora == "adapter":
            weights = lora.adapter_of(distributed.full_state(self.network, True, dtype))
        else:
            weights = self.full_weights(dtype)
        packed = self._pushed.pack(weights, dtype) if distributed.is_main() else None
        del weights
        self._lend()  # the rollout engine takes its cache next
        return packed

    def packed_bytes(self) -> NDArray[np.uint8] | None:
        """What was packed last, for engines on other machines (None on ranks other than 0)."""
        return self._pushed.bytes() if distributed.is_main() else None


class CriticWorker(TrainableRank[ValueTargets]):
    """One rank of the value model."""

    section = "critic"
    config: CriticConfig
    network: ValueNetwork

    def load_network(self, path: str) -> ValueNetwork:
        """A causal model with a scalar head."""
        return load_value(path, **self.loading)

    def compute_values(self, sequences: Sequences, plan: list[list[int]]) -> Shard:
        """Values (rows, T) of this rank's rows."""
        width = sequences.response_width

        def compute(batch: PaddedBatch, num_rows: int) -> list[Tensor]:
            return [scatter_tokens(self.network(batch), batch, num_rows, width)]

        return self.each_micro_batch(sequences, plan, compute)

    def loss(
        self, sequences: Sequences, targets: ValueTargets, mini: MiniBatch, rows: list[int]
    ) -> tuple[Tensor, dict[str, float]]:
        """The clipped squared error of the values."""
        batch = pad_batch(sequences, rows, self.device)
        shape = (len(rows), sequences.response_width)
        part = targets.select(rows, self.device)
        loss, clipfrac = compute_value_loss(
            vpreds=scatter_tokens(self.network(batch), batch, *shape),
            returns=part.returns,
            values=part.values,
            response_mask=part.response_mask,
            cliprange_value=self.config.cliprange_value,
            loss_agg_mode=self.config.loss_agg_mode,
            **self.scale(mini),
        )
        return loss, {"vf_loss": loss.item(), "vf_clipfrac": float(clipfrac)}


class ReferenceWorker(PolicyRank):
    """One rank of the frozen starting policy."""

    section = "actor_rollout_ref.ref"

    def build(self, path: str) -> None:
        """Load and shard the policy."""
        policy = load_policy(path, self.temperature, **self.loading)
        self.network = distributed.shard(policy.requires_grad_(False), self.fsdp)

"""The workers of the controller: actor, critic, reference policy, rollout engine and judge.

Each is a plain class that can be used without Ray, in one process or as one rank of an FSDP
group (:mod:`refblend.workers.ranks`).
"""

from collections.abc import Sequence

from torch import Tensor

from refblend.config import RefblendConfig
from refblend.config.actor_rollout_ref import ActorConfig, CriticConfig
from refblend.data.tokenizer import load_tokenizer
from refblend.ppo.kl import kl_penalty
from refblend.ppo.losses import (
    agg_loss,
    compute_entropy_loss,
    compute_policy_loss,
    compute_value_loss,
)
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
from refblend.workers.layout import PaddedBatch, pad_batch, scatter_tokens
from refblend.workers.networks import PolicyNetwork, ValueNetwork, load_policy, load_value
from refblend.workers.ranks import Rank, TrainableRank, prepare_process
from refblend.workers.shards import Shard
from refblend.workers.types import MiniBatch, PolicyTargets, Sequences, ValueTargets


class PolicyRank(Rank):
    """The forward pass that actor and reference policy share."""

    network: PolicyNetwork

    def compute_log_prob(self, sequences: Sequences, plan: list[list[int]]) -> Shard:
        """Log-probs and entropies (rows, T) of this rank's rows.

        Args:
            sequences: the whole batch.
            plan: row numbers of each micro-batch of this rank.
        """
        width = sequences.response_width

        def compute(batch: PaddedBatch, num_rows: int) -> list[Tensor]:
            return [scatter_tokens(v, batch, num_rows, width) for v in self.network(batch)]

        return self.each_micro_batch(sequences, plan, compute)


class ActorWorker(TrainableRank[PolicyTargets], PolicyRank):
    """One rank of the policy that is trained."""

    config: ActorConfig

    def __init__(
        self, config: RefblendConfig, total_steps: int, rank: int = 0, address: str = ""
    ) -> None:
        self._temperature = config.actor_rollout_ref.rollout.temperature
        super().__init__(config.actor_rollout_ref.actor, config, total_steps, rank, address)

    def load_network(self, path: str) -> PolicyNetwork:
        """The policy at the rollout temperature."""
        return load_policy(
            path,
            self._temperature,
            checkpointing=self._model.enable_gradient_checkpointing,
            trust_remote_code=self._model.trust_remote_code,
            shared_prefix=self._model.use_shared_prefix,
        )

    def loss(
        self, sequences: Sequences, targets: PolicyTargets, rows: list[int], mini: MiniBatch
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
        part = targets.select(rows).to(self.device)
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
        entropy_loss = compute_entropy_loss(entropy, mask, **scale)
        loss = policy.loss - cfg.entropy_coeff * entropy_loss
        figures = {
            "pg_loss": policy.loss.item(),
            "pg_clipfrac": float(policy.clipfrac),
            "pg_clipfrac_lower": float(policy.clipfrac_lower),
            "ppo_kl": float(policy.ppo_kl),
            "entropy": entropy_loss.item(),
        }
        if cfg.use_kl_loss:
            assert part.ref_log_probs is not None, "the reference runs whenever KL is asked for"
            divergence = kl_penalty(log_probs, part.ref_log_probs, cfg.kl_loss_type)
            kl_loss = agg_loss(divergence, mask, **scale)
            loss = loss + cfg.kl_loss_coef * kl_loss
            figures["kl_loss"] = kl_loss.item()
        return loss, figures

    def full_weights(self) -> dict[str, Tensor]:
        """All weights for the rollout engine (empty on ranks other than 0)."""
        return distributed.full_state(self.network)


class CriticWorker(TrainableRank[ValueTargets]):
    """One rank of the value model."""

    config: CriticConfig
    network: ValueNetwork

    def __init__(
        self, config: RefblendConfig, total_steps: int, rank: int = 0, address: str = ""
    ) -> None:
        super().__init__(config.critic, config, total_steps, rank, address)

    def load_network(self, path: str) -> ValueNetwork:
        """A causal model with a scalar head."""
        return load_value(
            path,
            checkpointing=self._model.enable_gradient_checkpointing,
            trust_remote_code=self._model.trust_remote_code,
            shared_prefix=self._model.use_shared_prefix,
        )

    def compute_values(self, sequences: Sequences, plan: list[list[int]]) -> Shard:
        """Values (rows, T) of this rank's rows."""
        width = sequences.response_width

        def compute(batch: PaddedBatch, num_rows: int) -> list[Tensor]:
            return [scatter_tokens(self.network(batch), batch, num_rows, width)]

        return self.each_micro_batch(sequences, plan, compute)

    def loss(
        self, sequences: Sequences, targets: ValueTargets, rows: list[int], mini: MiniBatch
    ) -> tuple[Tensor, dict[str, float]]:
        """The clipped squared error of the values."""
        batch = pad_batch(sequences, rows, self.device)
        shape = (len(rows), sequences.response_width)
        part = targets.select(rows).to(self.device)
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

    def __init__(
        self, config: RefblendConfig, total_steps: int, rank: int = 0, address: str = ""
    ) -> None:
        del total_steps  # the signature of every training group's rank
        fsdp = config.actor_rollout_ref.ref.fsdp_config
        super().__init__(fsdp, rank, address, config.trainer.worker_timeout_s)
        model = config.actor_rollout_ref.model
        policy = load_policy(
            model.path,
            config.actor_rollout_ref.rollout.temperature,
            trust_remote_code=model.trust_remote_code,
            shared_prefix=model.use_shared_prefix,
        )
        self.network = distributed.shard(policy.requires_grad_(False), fsdp)

    def compute_pooled_states(self, sequences: Sequences, plan: list[list[int]]) -> Shard:
        """Mean hidden state (rows, H) of each response."""
        return self.each_micro_batch(
            sequences, plan, lambda batch, _: [self.network(batch, pooled=True)[0]]
        )


class RolloutWorker:
    """The engine that generates the actor's responses."""

    def __init__(self, config: RefblendConfig) -> None:
        rollout = config.actor_rollout_ref.rollout
        prepare_process(rollout.num_threads)
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
        quality = config.algorithm.ref_quality_score
        scoring = quality.scoring
        prepare_process(scoring.num_threads)
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
        tokenizer = load_tokenizer(scoring.model_path)
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

    def begin_run(self) -> None:
        """Forget the prompts of an earlier run: a run must not depend on what ran before it."""
        self.engine.reset_prefix_cache()

    def last_call(self) -> CallStats:
        """Figures of the last batch: tokens, seconds, prefix-cache hit rate."""
        return self.judge.last_call

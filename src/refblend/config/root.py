"""The root of the configuration and the checks that concern several sections."""

from typing import Any, Literal

from pydantic import model_validator

from refblend.config.actor_rollout_ref import ActorRolloutRefConfig, CriticConfig
from refblend.config.algorithm import AlgorithmConfig
from refblend.config.base import Section
from refblend.config.data import DataConfig
from refblend.config.trainer import RayConfig, TrainerConfig


class RewardConfig(Section):
    """The rule-based reward."""

    custom_reward_function: str | None = None
    """``module:function`` used instead of the registered function of each row's data source."""
    method: Literal["strict", "flexible"] = "flexible"
    """Answer extraction of the training reward; validation reports both."""


class RefblendConfig(Section):
    """Everything a run depends on; saved as ``config.json`` beside its results."""

    data: DataConfig
    actor_rollout_ref: ActorRolloutRefConfig
    critic: CriticConfig = CriticConfig()
    algorithm: AlgorithmConfig = AlgorithmConfig()
    reward: RewardConfig = RewardConfig()
    trainer: TrainerConfig = TrainerConfig()
    ray: RayConfig = RayConfig()

    @property
    def use_critic(self) -> bool:
        """Whether a value model is trained."""
        if self.critic.enable is not None:
            return self.critic.enable
        return self.algorithm.adv_estimator == "gae"

    @property
    def use_reference(self) -> bool:
        """Whether the frozen reference policy is needed (KL or alignment)."""
        return (
            self.algorithm.use_kl_in_reward
            or self.actor_rollout_ref.actor.use_kl_loss
            or self.algorithm.repr_align.enable
        )

    @property
    def use_judge(self) -> bool:
        """Whether a judge engine runs (a random control needs none)."""
        quality = self.algorithm.ref_quality_score
        return quality.enable and quality.scoring.control != "random"

    @model_validator(mode="after")
    def _lengths_fit(self) -> "RefblendConfig":
        limit = self.actor_rollout_ref.rollout.max_model_len
        wanted = self.data.max_prompt_length + self.data.max_response_length
        if limit is not None and limit < wanted:
            raise ValueError(
                f"actor_rollout_ref.rollout.max_model_len={limit} is smaller than "
                f"data.max_prompt_length + data.max_response_length = {wanted}: "
                "raise it, or shorten the lengths"
            )
        return self

    @model_validator(mode="after")
    def _batches_divide(self) -> "RefblendConfig":
        for name, worker in (
            ("actor_rollout_ref.actor", self.actor_rollout_ref.actor),
            ("critic", self.critic),
        ):
            mini = worker.ppo_mini_batch_size
            if mini is not None and mini > self.data.train_batch_size:
                raise ValueError(
                    f"{name}.ppo_mini_batch_size={mini} is larger than data.train_batch_size="
                    f"{self.data.train_batch_size}: lower it"
                )
        return self

    @model_validator(mode="after")
    def _estimator_has_what_it_needs(self) -> "RefblendConfig":
        estimator = self.algorithm.adv_estimator
        if estimator == "gae" and self.critic.enable is False:
            raise ValueError(
                "algorithm.adv_estimator=gae needs a critic: set critic.enable=null or true"
            )
        if estimator in ("grpo", "rloo") and self.actor_rollout_ref.rollout.n < 2:
            raise ValueError(
                f"algorithm.adv_estimator={estimator} compares the responses of a prompt: "
                "set actor_rollout_ref.rollout.n to 2 or more"
            )
        return self

    def resolved(self) -> dict[str, Any]:
        """The whole tree as plain JSON values."""
        return self.model_dump(mode="json")

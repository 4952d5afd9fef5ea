"""The root of the configuration and the checks that concern several sections."""

import copy
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import model_validator

from refblend.config.actor_rollout_ref import ActorRolloutRefConfig, CriticConfig, EngineConfig
from refblend.config.algorithm import AlgorithmConfig
from refblend.config.base import Fraction, PositiveInt, Section
from refblend.config.scoring import SCORING_KEY
from refblend.config.trainer import RayConfig, TrainerConfig
from refblend.documents import show

MAX_VLLM_RANK = 512
"""Of an adapter in vLLM."""
OF_AN_ENGINE = (
    *("timeout_s", "resource_pool", "max_model_len", "gpu_memory_utilization"),
    *(name for name in EngineConfig.model_fields if name != "sleep"),
)
"""Settings of ``scoring`` for a judge's own engine."""


class DataConfig(Section):
    """Where prompts come from and how long they may be (verl's names)."""

    train_files: list[str]
    """Parquet or jsonl files in verl's schema, trained on."""
    val_files: list[str]
    """Files evaluated every ``trainer.test_freq`` steps."""
    sanity_files: list[str] = []
    """Items known to the actor, for the drift guard; evaluated with the validation files."""
    max_prompt_length: PositiveInt = 256
    """Tokens; longer prompts are dropped and counted, or truncated (``truncation``)."""
    max_response_length: PositiveInt = 256
    """Maximum number of tokens generated for one response."""
    train_batch_size: PositiveInt = 32
    """Prompts per step, before replication by ``actor_rollout_ref.rollout.n``."""
    shuffle: bool = True
    """Shuffle the training prompts every epoch, from the run's seed."""
    filter_overlong_prompts: bool = True
    """Drop prompts over ``max_prompt_length`` at start-up, with a count."""
    truncation: Literal["error", "left", "right", "middle"] = "error"
    """How to treat overlong prompts that are not dropped."""
    max_val_samples: PositiveInt | None = None
    """Evaluate at most this many validation rows, from the top."""


class CustomRewardFunctionConfig(Section):
    """The user's own reward function, in verl's spelling or as ``module:function``."""

    path: str | None = None
    """A Python file, or ``pkg://package.module``; null: the rule of each row's data source."""
    name: str = "compute_score"
    """Name of the function in it."""
    reward_kwargs: dict[str, Any] = {}
    """Keyword arguments passed to every call in addition to those of the row."""

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        """``module:function`` stands for ``path: pkg://module, name: function``."""
        if value is None:
            return {}
        if not isinstance(value, str):
            return value
        module, _, function = value.partition(":")
        if not module or not function:
            raise ValueError(
                f"{show(value)} is not of the form module:function: write e.g. "
                "my_rewards:compute_score, or set path and name"
            )
        return {"path": f"pkg://{module}", "name": function}

    def _misfits(self) -> Iterator[str]:
        if self.path is None and (self.name != "compute_score" or self.reward_kwargs):
            key = "reward_kwargs" if self.reward_kwargs else "name"
            yield (
                f"{key} has no effect without path, and the rule of each row's data source would "
                "score: set path to the function's file"
            )


class VerifierConfig(Section):
    """Faults of the rule reward, for studies of poor verifiers; training rewards only."""

    checked_share: Fraction = 1.0
    """Share of the problems that the verifier can check; responses to the others get 0."""
    flip_rate: Fraction = 0.0
    """Probability that the reward R of a response becomes 1 − R."""


class RewardConfig(Section):
    """The rule-based reward."""

    custom_reward_function: CustomRewardFunctionConfig = CustomRewardFunctionConfig()
    """Used instead of the registered function of each row's data source."""
    keep_special_tokens: bool = False
    """Rewards, judge and rollout files see a response's special tokens, except its end token."""
    method: Literal["strict", "flexible"] = "flexible"
    """Answer extraction of the training reward; validation reports both."""
    verifier: VerifierConfig = VerifierConfig()
    """Faults of the verifier: none by default."""


class RefblendConfig(Section):
    """Everything a run depends on; saved as ``config.json`` with its results."""

    data: DataConfig
    """Prompt files, lengths and batches."""
    actor_rollout_ref: ActorRolloutRefConfig
    """Actor, rollout engine and reference policy."""
    critic: CriticConfig = CriticConfig()
    """The value model of GAE."""
    algorithm: AlgorithmConfig = AlgorithmConfig()
    """From rewards to advantages."""
    reward: RewardConfig = RewardConfig()
    """The rule-based reward."""
    trainer: TrainerConfig = TrainerConfig()
    """The run: length, files, deadlines."""
    ray: RayConfig = RayConfig()
    """The Ray cluster."""

    @model_validator(mode="before")
    @classmethod
    def _reward_function_as_in_verl(cls, tree: Any) -> Any:
        """verl has ``custom_reward_function`` at the top level."""
        if not isinstance(tree, dict) or "custom_reward_function" not in tree:
            return tree
        tree = dict(tree)
        function = tree.pop("custom_reward_function")
        reward = tree.get("reward") or {}
        if not isinstance(reward, dict):
            return tree
        inner = reward.get("custom_reward_function")
        if inner and not (isinstance(inner, dict) and inner.get("path") is None):
            raise ValueError(
                "custom_reward_function and reward.custom_reward_function are both set: remove one"
            )
        return tree | {"reward": reward | {"custom_reward_function": function}}

    @model_validator(mode="before")
    @classmethod
    def _reference_is_the_judge(cls, tree: Any) -> Any:
        """``scoring.kind: reference`` needs no ``model_path``: it is the actor's."""
        try:
            scoring = tree["algorithm"]["ref_quality_score"]["scoring"]
            absent = scoring["kind"] == "reference" and scoring.get("model_path") is None
            path = tree["actor_rollout_ref"]["model"]["path"]
        except (LookupError, TypeError, AttributeError):
            return tree  # the sections' own checks tell what is wrong
        if absent:
            tree = copy.deepcopy(tree)
            tree["algorithm"]["ref_quality_score"]["scoring"]["model_path"] = path
        return tree

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
    def use_lora(self) -> bool:
        """Whether the actor is a frozen base with an adapter; the base is the reference policy."""
        return self.actor_rollout_ref.model.lora_rank > 0

    @property
    def reference_in_actor(self) -> bool:
        """Whether the actor's processes compute the reference policy, too."""
        return self.use_reference and (self.use_lora or self.actor_rollout_ref.ref.colocated)

    @property
    def use_judge(self) -> bool:
        """Whether a judge answers (controls without a judge need none)."""
        return self.algorithm.ref_quality_score.asks_a_judge

    @property
    def shares_judge(self) -> bool:
        """Whether the rollout engine, without the actor's adapter, is the judge."""
        reference = self.algorithm.ref_quality_score.scoring.kind == "reference"
        return self.use_judge and reference and self.actor_rollout_ref.rollout.lora == "adapter"

    def _misfits(self) -> Iterator[str]:
        limit = self.actor_rollout_ref.rollout.max_model_len
        wanted = self.data.max_prompt_length + self.data.max_response_length
        if limit is not None and limit < wanted:
            yield (
                f"actor_rollout_ref.rollout.max_model_len={limit} is smaller than "
                f"data.max_prompt_length + data.max_response_length = {wanted}: "
                "raise it, or shorten the lengths"
            )
        scoring = self.algorithm.ref_quality_score.scoring
        if self.use_judge and scoring.overlap and scoring.sleep:
            yield (
                "algorithm.ref_quality_score.scoring.overlap=true lets the judge work beside the "
                "actor, and a judge that sleeps takes turns: set overlap=false, or sleep=false"
            )
        size = self.data.train_batch_size
        workers = {"actor_rollout_ref.actor": self.actor_rollout_ref.actor, "critic": self.critic}
        for name, worker in workers.items():
            mini = worker.ppo_mini_batch_size
            if mini is not None and mini > size:
                yield (
                    f"{name}.ppo_mini_batch_size={mini} is larger than "
                    f"data.train_batch_size={size}: lower it"
                )
        if self.trainer.drift_guard.stop and not self.data.sanity_files:
            yield (
                "trainer.drift_guard.stop watches the sanity set, and this run has none: name "
                "data.sanity_files, or set it to false"
            )
        yield from self._misfits_of_engines()
        yield from self._misfits_of_estimator()
        yield from self._misfits_of_lora()
        yield from self._misfits_of_judge()

    def _misfits_of_engines(self) -> Iterator[str]:
        rollout, scoring = self.actor_rollout_ref.rollout, self.algorithm.ref_quality_score.scoring
        engines: list[tuple[str, str, EngineConfig]]
        engines = [("actor_rollout_ref.rollout", rollout.name, rollout)]
        if self.use_judge:
            engines.append((SCORING_KEY, scoring.engine, scoring))
        for section, kind, engine in engines:
            if engine.enable_chunked_prefill and not engine.num_gpus:
                yield (
                    f"{section}.enable_chunked_prefill=true without a GPU: on the CPU a prompt "
                    f"that vLLM splits loses its seed: leave it out, or set {section}.num_gpus"
                )
            of_vllm = {
                "engine_kwargs={}": engine.engine_kwargs,
                "tensor_model_parallel_size=1": engine.tensor_model_parallel_size > 1,
                "sleep=false": engine.sleep and engine.num_gpus,
            }
            for remedy, given in of_vllm.items():
                if kind != "vllm" and given:
                    key = remedy.partition("=")[0]
                    yield f"{section}.{key} is for vLLM, and the engine is {kind}: set {remedy}"

    def _misfits_of_estimator(self) -> Iterator[str]:
        estimator = self.algorithm.adv_estimator
        if self.trainer.critic_warmup and not self.use_critic:
            yield (
                f"trainer.critic_warmup={self.trainer.critic_warmup} keeps the actor as it is "
                "while a critic learns, and this run has none: set it to 0, or choose an estimator "
                "with a critic, such as gae"
            )
        if estimator == "gae" and self.critic.enable is False:
            yield "algorithm.adv_estimator=gae needs a critic: set critic.enable=null or true"
        quality, key = self.algorithm.ref_quality_score, "algorithm.ref_quality_score"
        grouped = {
            f"algorithm.adv_estimator={estimator}": estimator in ("grpo", "rloo"),
            f"{key}.groups=mixed": quality.enable and quality.groups == "mixed",
            f"{key}.method={quality.method}": quality.enable and quality.method in ("gdpo", "hero"),
        }
        for setting, compares in grouped.items():
            if compares and self.actor_rollout_ref.rollout.n < 2:
                yield (
                    f"{setting} compares the responses of a prompt: set "
                    "actor_rollout_ref.rollout.n to 2 or more"
                )

    def _misfits_of_lora(self) -> Iterator[str]:
        rollout, rank = self.actor_rollout_ref.rollout, self.actor_rollout_ref.model.lora_rank
        if rollout.lora == "adapter" and (rollout.name != "vllm" or not 0 < rank <= MAX_VLLM_RANK):
            yield (
                f"actor_rollout_ref.rollout.lora=adapter, but rollout.name is {rollout.name} and "
                f"model.lora_rank is {rank}: it needs vllm and a rank from 1 to {MAX_VLLM_RANK}, "
                "or set lora=merged"
            )
        if rollout.lora == "adapter" and rollout.sleep:
            yield (
                "actor_rollout_ref.rollout.sleep=true drops the engine's weights, and with "
                "lora=adapter no push brings them back: set sleep=false, or lora=merged"
            )

    def _misfits_of_judge(self) -> Iterator[str]:
        scoring = self.algorithm.ref_quality_score.scoring
        if scoring.kind == "reference" and scoring.model_path != self.actor_rollout_ref.model.path:
            yield (
                f"{SCORING_KEY}.model_path={scoring.model_path}, but with kind=reference the judge "
                "is the actor's starting model: leave model_path out, or set kind=vllm"
            )
        if self.shares_judge:
            default = type(scoring)()
            for name in OF_AN_ENGINE:
                if getattr(scoring, name) != getattr(default, name):
                    yield (
                        f"{SCORING_KEY}.{name} has no effect, since the rollout engine is the "
                        "judge: leave it out, or set actor_rollout_ref.rollout.lora=merged"
                    )

    def resolved(self) -> dict[str, Any]:
        """The whole tree as plain JSON values."""
        return self.model_dump(mode="json")

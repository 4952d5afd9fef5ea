"""``algorithm.*``: advantages, KL, and the blending of the reference quality score."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from refblend.config.actor_rollout_ref import Dtype, KlType
from refblend.config.base import (
    Fraction,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Section,
)
from refblend.ppo.weights import STRATEGIES, Ramp, WeightParams


def _is_a_strategy(name: str) -> str:
    if name not in STRATEGIES:
        raise ValueError(f"use one of {', '.join(map(repr, STRATEGIES))}")
    return name


StrategyName = Annotated[str, AfterValidator(_is_a_strategy)]
"""A name of :data:`refblend.ppo.weights.STRATEGIES`."""


class KlCtrlConfig(Section):
    """Coefficient of the KL penalty in the reward."""

    type: Literal["fixed", "adaptive"] = "fixed"
    kl_coef: NonNegativeFloat = 0.001
    horizon: PositiveInt = 10000
    """Samples over which the adaptive coefficient reacts."""
    target_kl: PositiveFloat = 0.1


class RolloutCorrectionConfig(Section):
    """Importance correction between the engine's and the trainer's log-probs."""

    mode: Literal["off", "truncate", "mask"] = "off"
    """``truncate``: min(ρ, threshold); ``mask``: 0 outside [1/threshold, threshold]."""
    threshold: float = Field(default=2.0, gt=1.0)


class ScoringConfig(Section):
    """How the judge is asked (spec, sections 2 and 5D)."""

    model_path: str | None = None
    """The judge's directory; needed when the score is enabled."""
    templates: str = "default"
    """Prompt texts and few-shot examples: ``default``, ``embedded`` (ours, which the embedded
    judges were trained on), or the path of a YAML file."""
    few_shot: bool = True
    """Show the examples; off: the compact template only."""
    max_new_tokens: PositiveInt = 64
    hard_clip: bool = True
    """Cut token ids that would not fit; off: such a sample counts and gets ``invalid_score``."""
    fallback_max_length: PositiveInt = 768
    """Length cap used beside the model's and tokenizer's own (spec, section 2)."""
    safety_margin: NonNegativeInt = 16
    """Tokens left free below the cap."""
    temperature: NonNegativeFloat = 0.0
    """0: the judge answers greedily."""
    score_mode: Literal["text", "expected"] = "expected"
    """``expected``: probability-weighted value of the score's digits; ``text``: as written."""
    on_failure: Literal["invalid_score", "rule_reward"] = "invalid_score"
    """A sample without a valid score gets the neutral score, or its rule reward unblended."""
    max_invalid_rate: Fraction = 0.9
    """The run stops when more scores than this are invalid over ``invalid_window`` steps."""
    invalid_window: PositiveInt = 5
    timeout_s: PositiveFloat | None = None
    """Deadline of the judge for a batch; past it the judge is replaced and the batch's samples
    have no valid score. Null: past ``trainer.worker_timeout_s`` it is replaced and asked again."""
    resource_pool: Literal["global_pool", "judge_pool"] = "global_pool"
    """``judge_pool``: a placement group of its own (spec, experiment F)."""
    overlap: bool = True
    """The judge works beside the log-prob passes; off: before them (spec, experiment F)."""
    max_model_len: PositiveInt | None = None
    """Longest prompt + answer of the judge's engine; null: what the model allows."""
    dtype: Dtype = "float32"
    kv_cache_memory_mb: PositiveInt = 256
    gpu_memory_utilization: float = Field(default=0.3, gt=0, le=1)
    num_threads: PositiveInt = 1
    num_gpus: NonNegativeFloat = 0.0
    control: Literal["none", "shuffled", "random"] = "none"
    """Control arms: scores permuted within the batch, or uniform random scores."""


class RefQualityScoreConfig(Section):
    """The blend R' = (1 − w)R + wQ and the map from entropy to w (spec, section 2.2)."""

    enable: bool = True
    strategy: StrategyName = "linear"
    max_weight: Fraction = 0.3
    """w_max: the largest share of the judge's score in the reward."""
    entropy_high_threshold: PositiveFloat = 1.0
    """τ in nats: from this entropy on the weight is 0 (``exp``: e^−k of the maximum)."""
    entropy_low_threshold: NonNegativeFloat = 0.3
    """``piecewise``: below this entropy the weight is ``max_weight``."""
    exp_k: PositiveFloat = 3.0
    """``exp``: decay rate k in w_max·e^(−k·ê)."""
    schedule: Ramp = "linear"
    """``schedule``: shape of the ramp over the training steps (the spec's fallback)."""
    schedule_warmup_share: Fraction = 0.5
    """``schedule``: share of the training steps after which w = ``max_weight``."""
    placement: Literal["per_token", "terminal", "per_token_mean"] = "per_token"
    """Where Q stands: on every response token (spec), on the last, or q/L on each."""
    invalid_score: Fraction = 0.5
    """Score of a judge's answer that neither parser can read."""
    max_weight_warmup_steps: NonNegativeInt = 0
    """Steps over which w_max rises linearly from 0 (spec, section 7)."""
    scoring: ScoringConfig = ScoringConfig()

    @model_validator(mode="after")
    def _parameters_fit_the_strategy(self) -> "RefQualityScoreConfig":
        if problem := STRATEGIES[self.strategy].check(WeightParams.of(self)):
            raise ValueError(problem)
        if self.enable and self.scoring.model_path is None and self.scoring.control != "random":
            raise ValueError(
                "scoring.model_path is needed while enable is true: name the judge's directory, "
                "or set enable=false"
            )
        return self


class ReprAlignConfig(Section):
    """Representation-alignment bonus (spec, section 2.1), off by default."""

    enable: bool = False
    entropy_high_threshold: PositiveFloat = 0.32
    """The bonus is given from this average entropy on, in nats."""
    weight: NonNegativeFloat = 0.1
    weight_warmup_steps: NonNegativeInt = 0


class AlgorithmConfig(Section):
    """From rewards to advantages."""

    adv_estimator: str = "grpo"
    """gae, grpo, rloo, reinforce_plus_plus(_baseline), remax, or ``module:function``."""
    gamma: Fraction = 1.0
    lam: Fraction = 1.0
    norm_adv_by_std_in_grpo: bool = True
    """False: Dr.GRPO (arXiv 2503.20783)."""
    use_kl_in_reward: bool = False
    kl_penalty: KlType = "kl"
    kl_ctrl: KlCtrlConfig = KlCtrlConfig()
    rollout_correction: RolloutCorrectionConfig = RolloutCorrectionConfig()
    ref_quality_score: RefQualityScoreConfig = RefQualityScoreConfig(enable=False)
    repr_align: ReprAlignConfig = ReprAlignConfig()

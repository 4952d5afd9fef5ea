"""``algorithm.*``: advantages, KL, and the blending of the reference quality score."""

import math
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from refblend.config.base import (
    Fraction,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Section,
)
from refblend.config.scoring import JUDGES, ScoringConfig
from refblend.ppo.choices import (
    HERO_MOST,
    CorrectionMode,
    EntropyLevel,
    KlType,
    Method,
    Placement,
    Ramp,
)
from refblend.ppo.weights import STRATEGIES, WeightParams


def _is_a_strategy(name: str) -> str:
    if name not in STRATEGIES and ":" not in name:
        names = ", ".join(map(repr, STRATEGIES))
        raise ValueError(f"use one of {names}, or module:function of your own")
    return name


StrategyName = Annotated[str, AfterValidator(_is_a_strategy)]
"""A name of :data:`refblend.ppo.weights.STRATEGIES`, or a user's ``module:function``."""


def _is_a_threshold(value: Any) -> Any:
    if value == "auto":
        return value
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
        raise ValueError("give auto, or a number of nats greater than 0")
    return float(value)


Threshold = Annotated[float | Literal["auto"], BeforeValidator(_is_a_threshold)]
"""An entropy in nats, or ``auto``."""


class KlCtrlConfig(Section):
    """Coefficient of the KL penalty in the reward."""

    type: Literal["fixed", "adaptive"] = "fixed"
    """``adaptive`` steers the measured KL towards ``target_kl``."""
    kl_coef: NonNegativeFloat = 0.001
    """β of R'' = R' − βKL; where an adaptive coefficient begins."""
    horizon: PositiveInt = 10000
    """Samples over which the adaptive coefficient reacts."""
    target_kl: PositiveFloat = 0.1
    """Mean KL per token, in nats, that the adaptive coefficient aims at."""


class RolloutCorrectionConfig(Section):
    """Importance correction between the engine's and the trainer's log-probs."""

    mode: CorrectionMode = "off"
    """``truncate``: min(ρ, threshold); ``mask``: 0 outside [1/threshold, threshold]."""
    threshold: float = Field(default=2.0, gt=1.0)
    """Bound of the ratio ρ of the trainer's to the engine's probability of a token."""


class RefQualityScoreConfig(Section):
    """The blend R' = (1 − w)R + wQ and the map from entropy to w."""

    enable: bool = True
    """Ask the judge and blend its score into the reward."""
    strategy: StrategyName = "linear"
    """Map from the average entropy to the weight w; ``module:function`` for your own."""
    method: Method = "blend"
    """How R and Q make R': ``blend``; ``recheck``, a blend only where the rule gives 0 (arXiv
    2510.00915); ``gdpo``, a blend after each is normalised within its group (arXiv
    2601.05242); ``hero``, R' = R + w(2q̃ − 1), q̃ the score rescaled among responses of equal rule
    reward, and more weight for prompts whose scores differ (arXiv 2510.07242)."""
    entropy_level: EntropyLevel = "batch"
    """``batch``: one w, from the average entropy; ``response``: a w for each response, from its own
    mean entropy."""
    max_weight: Fraction = 0.3
    """w_max: the largest share of the judge's score in the reward."""
    entropy_high_threshold: Threshold = 1.0
    """τ in nats: from this entropy on the weight is 0 (``exp``: e^−k of the maximum). ``auto``:
    ``entropy_high_threshold_factor`` times the average entropy of the first batch."""
    entropy_high_threshold_factor: PositiveFloat = 1.5
    """τ / H₀ of ``entropy_high_threshold: auto``, H₀ the entropy before the first update."""
    entropy_low_threshold: NonNegativeFloat = 0.3
    """``piecewise``: below this entropy the weight is ``max_weight``."""
    exp_k: PositiveFloat = 3.0
    """``exp``: decay rate k in w_max·e^(−k·ê)."""
    schedule: Ramp = "linear"
    """``schedule``, ``decay``: shape of the ramp over the training steps."""
    schedule_warmup_share: Fraction = 0.5
    """``schedule``, ``decay``: share of the training steps after which w has risen to
    ``max_weight``, or fallen to 0."""
    replay_file: str | None = None
    """``replay``: ``metrics.jsonl`` of the run whose weights are used. With ``--seeds``, ``{seed}``
    in it becomes the run's seed and ``{partner_seed}`` the other seed of its pair (1 and 2, 3 and
    4, …)."""
    replay_order: Literal["recorded", "shuffled", "mean"] = "recorded"
    """``replay``: step by step as recorded, in an order drawn from the run's seed, or their mean in
    every step."""
    groups: Literal["all", "mixed"] = "all"
    """``mixed``: blend only in groups whose rule rewards differ."""
    weight_per_length: bool = False
    """``per_token``: divide the weight of a response by its number of tokens L. The judge's part is
    then w·q as with ``terminal``, but the rule's keeps 1 − w/L, not 1 − w."""
    placement: Placement = "per_token"
    """Which tokens get q: every response token (which pays for length), the last, or q/L each."""
    invalid_score: Fraction = 0.5
    """Score of a judge's answer that neither parser can read."""
    max_weight_warmup_steps: NonNegativeInt = 0
    """Steps over which w_max rises linearly from 0."""
    scoring: ScoringConfig = ScoringConfig()
    """How the judge is asked."""

    def _misfits(self) -> Iterator[str]:
        if not self.enable:
            return
        if self.method in ("gdpo", "hero") and self.placement != "terminal":
            yield f"method={self.method} gives one number per response: set placement=terminal"
        compared = self.method in ("gdpo", "hero") or self.scoring.control == "shuffled"
        if compared and self.scoring.on_failure == "rule_reward":
            yield (
                f"method={self.method} with scoring.control={self.scoring.control} needs all scores"
                ", and on_failure=rule_reward leaves some out: set scoring.on_failure=invalid_score"
            )
        if self.weight_per_length and self.placement != "per_token":
            yield (
                "weight_per_length=true divides a score on every token: set placement=per_token, "
                "or weight_per_length=false"
            )
        if self.strategy == "replay" and self.max_weight_warmup_steps:
            yield (
                "strategy=replay has the recorded weights, warm-up included: set "
                "max_weight_warmup_steps=0"
            )
        if self.method == "hero" and self.max_weight >= HERO_MOST:
            yield (
                f"max_weight={self.max_weight} would let method=hero lift a wrong response above a "
                f"right one: lower it below {HERO_MOST}"
            )
        strategy = STRATEGIES.get(self.strategy)  # a user's may read anything
        if strategy is not None and self.entropy_high_threshold != "auto":
            replayed = (0.0,) if self.replay_file else ()
            if problem := strategy.check(WeightParams.of(self, replayed=replayed)):
                yield problem
        elif strategy is not None and "entropy_low_threshold" in strategy.parameters:
            yield (
                f"strategy={self.strategy} has two thresholds, which auto cannot set: give "
                "entropy_high_threshold in nats"
            )
        held = JUDGES.keys() - {"http"}
        needed = self.asks_a_judge and self.scoring.kind in held
        if needed and self.scoring.model_path is None:
            yield (
                "scoring.model_path is needed while enable is true: name the judge's directory, "
                "or set enable=false"
            )

    @property
    def asks_a_judge(self) -> bool:
        """Whether a judge answers: not where the score is off, random or partial credit."""
        return self.enable and self.scoring.control not in ("random", "oracle")


class ReprAlignConfig(Section):
    """Representation-alignment bonus, off by default."""

    enable: bool = False
    """Give the bonus; needs gold solutions in the data."""
    entropy_high_threshold: PositiveFloat = 0.32
    """The bonus is given from this average entropy on, in nats."""
    weight: NonNegativeFloat = 0.1
    """Factor of the cosine similarity in the bonus."""
    weight_warmup_steps: NonNegativeInt = 0
    """Steps over which the weight rises linearly from 0."""


class AlgorithmConfig(Section):
    """From rewards to advantages."""

    adv_estimator: str = "grpo"
    """gae, grpo, rloo, reinforce_plus_plus(_baseline), remax, or ``module:function``."""
    gamma: Fraction = 1.0
    """Discount per token."""
    lam: Fraction = 1.0
    """λ of GAE."""
    norm_adv_by_std_in_grpo: bool = True
    """False: Dr.GRPO (arXiv 2503.20783)."""
    use_kl_in_reward: bool = False
    """Subtract β·KL(actor, reference) from the reward of every token."""
    kl_penalty: KlType = "kl"
    """Estimator of KL per token (http://joschu.net/blog/kl-approx.html): ``k1``/``kl``,
    ``abs``, ``k2``/``mse`` or ``k3``/``low_var_kl``."""
    kl_ctrl: KlCtrlConfig = KlCtrlConfig()
    """The coefficient β of that penalty."""
    rollout_correction: RolloutCorrectionConfig = RolloutCorrectionConfig()
    """Importance weights for the engine's log-probs."""
    ref_quality_score: RefQualityScoreConfig = RefQualityScoreConfig(enable=False)
    """The blend of the judge's score into the reward."""
    repr_align: ReprAlignConfig = ReprAlignConfig()
    """The representation-alignment bonus."""

    def _misfits(self) -> Iterator[str]:
        quality = self.ref_quality_score
        if not quality.enable:
            return
        normalises = self.adv_estimator == "grpo" and self.norm_adv_by_std_in_grpo
        if quality.method == "gdpo" and normalises:
            yield (
                "ref_quality_score.method=gdpo has normalised within the groups: set adv_estimator="
                "reinforce_plus_plus_baseline, which normalises over the batch, or "
                "norm_adv_by_std_in_grpo=false"
            )

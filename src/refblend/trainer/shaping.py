"""From experience to token-level rewards: blend, then KL, then the alignment bonus.

Pure: tensors and configuration in, tensors and metrics out.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from refblend.config import RefblendConfig
from refblend.config.algorithm import RefQualityScoreConfig, ReprAlignConfig
from refblend.errors import TrainingError
from refblend.ppo.blending import (
    blend_rewards,
    compute_avg_response_entropy,
    expand_quality,
    random_scores,
    shuffle_scores,
)
from refblend.ppo.kl import KLController, apply_kl_penalty, kl_penalty, mean_sequence_kl
from refblend.ppo.metrics import correlation, expected_calibration_error, roc_auc
from refblend.ppo.weights import StepContext, WeightParams, counterfactual_weights, weight_for
from refblend.rewards.alignment import alignment_bonus, alignment_weight
from refblend.scoring.result import JudgeResult, score_metrics
from refblend.trainer.batch import Experience, Rollout
from refblend.workers.types import response_mask

PREFIX = "actor/ref_quality"


def rule_matrix(rule: Tensor, response_mask: Tensor) -> Tensor:
    """The rule reward on the last token of each response (B, T), verl's convention."""
    return expand_quality(rule, response_mask, "terminal")


@dataclass(frozen=True)
class Blended:
    """The outcome of :func:`blend`."""

    rewards: Tensor
    """(B, T) R' of the samples."""
    baselines: Tensor | None
    """(P,) Σ_t R' of the greedy responses, if there are any."""
    metrics: dict[str, float]
    """``actor/ref_quality/*``"""
    quality: Tensor | None = None
    """(B,) the scores that were blended, the judge's or a control's; None if blending is off."""
    weights: Tensor | None = None
    """(B,) w of each response; None if blending is off."""


def blend(
    config: RefQualityScoreConfig,
    rollout: Rollout,
    experience: Experience,
    context: StepContext,
    control: np.random.Generator,
) -> Blended:
    """R' = (1 − w)R + wQ with w from the actor's average entropy; R if blending is off.

    Greedy baselines are blended with the same w, so that ReMax's baseline measures the same
    quantity.

    Args:
        config: ``algorithm.ref_quality_score``.
        rollout: the responses.
        experience: what was found out about them.
        context: for schedules and warm-ups.
        control: randomness of the control arms.

    Raises:
        TrainingError: the average entropy is not finite.
    """
    entropy = float(compute_avg_response_entropy(experience.old.entropy, rollout.response_mask))
    if not math.isfinite(entropy):
        raise TrainingError(
            f"step {context.step}: the actor's average entropy is {entropy}: its log-probs are not "
            "finite",
            "Lower the learning rate or grad_clip and resume from an earlier checkpoint.",
        )
    metrics = {f"{PREFIX}/avg_entropy": entropy}
    weight = 0.0
    if config.enable:
        at = (entropy, context.step, context.total_steps, WeightParams.of(config))
        weight = weight_for(config.strategy, *at)
        counterfactual = counterfactual_weights(*at)
        metrics |= {f"{PREFIX}/weight": weight}
        metrics |= {f"{PREFIX}/counterfactual/{name}": w for name, w in counterfactual.items()}
        metrics |= (
            judge_metrics(experience.quality, experience.accuracy) if experience.quality else {}
        )

    def blended(
        rule: Tensor, judged: list[JudgeResult] | None, mask: Tensor
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        rewards = rule_matrix(rule, mask)
        if not config.enable:
            return rewards, None, None
        quality, weights = _quality(config, judged, len(rule), weight, control)
        placed = expand_quality(quality, mask, config.placement)
        rewards = blend_rewards(rewards, placed, mask, weights)
        return rewards, quality, torch.as_tensor(weights).expand(len(rule))

    rewards, quality, weights = blended(experience.rule, experience.quality, rollout.response_mask)
    baselines = None
    if rollout.greedy is not None:
        assert experience.greedy_rule is not None, "scored with the samples"
        mask = response_mask(rollout.greedy.lengths)
        baselines = blended(experience.greedy_rule, experience.greedy_quality, mask)[0].sum(-1)
    return Blended(rewards, baselines, metrics, quality, weights)


def _quality(
    config: RefQualityScoreConfig,
    results: Sequence[JudgeResult] | None,
    count: int,
    weight: float,
    control: np.random.Generator,
) -> tuple[Tensor, float | Tensor]:
    """The scores (B,) to blend, and the weight: one number, or one per row."""
    scoring = config.scoring
    if scoring.control == "random" or results is None:
        return random_scores(count, control), weight
    quality = torch.tensor([r.score for r in results], dtype=torch.float32)
    if scoring.control == "shuffled":
        return shuffle_scores(quality, control), weight
    if scoring.on_failure == "rule_reward":
        return quality, weight * torch.tensor([float(r.valid) for r in results])
    return quality, weight


def judge_metrics(results: Sequence[JudgeResult], accuracy: Tensor) -> dict[str, float]:
    """Rates and distribution of the scores, and how well they separate right from wrong answers."""
    valid = [i for i, r in enumerate(results) if r.valid]
    scores = [results[i].score for i in valid]
    labels = accuracy[valid] if valid else torch.zeros(0)
    quality = {
        f"{PREFIX}/auc": roc_auc(scores, labels),
        f"{PREFIX}/ece": expected_calibration_error(scores, labels),
    }
    return score_metrics(results) | {k: v for k, v in quality.items() if v is not None}


def penalise_kl(
    config: RefblendConfig,
    rewards: Tensor,
    rollout: Rollout,
    experience: Experience,
    controller: KLController,
) -> tuple[Tensor, dict[str, float]]:
    """R'' = R' − βKL, and the adaptive controller's step; R' if KL is not in the reward."""
    if not config.algorithm.use_kl_in_reward:
        return rewards, {}
    assert experience.reference is not None, "the reference policy runs whenever KL is asked for"
    kl = kl_penalty(experience.old.log_probs, experience.reference, config.algorithm.kl_penalty)
    current = mean_sequence_kl(kl, rollout.response_mask)
    if not math.isfinite(current):
        # It would stay in the adaptive controller forever.
        raise TrainingError(
            f"the KL penalty (algorithm.kl_penalty={config.algorithm.kl_penalty}) is {current}",
            "Lower the learning rate, or choose another estimator, and call again to resume.",
        )
    metrics = {
        "actor/reward_kl_penalty": current,
        "actor/reward_kl_penalty_coeff": controller.value,
    }
    penalised = apply_kl_penalty(rewards, kl, rollout.response_mask, controller.value)
    controller.update(current, n_steps=len(rewards))
    return penalised, metrics


def add_alignment_bonus(
    config: ReprAlignConfig, rewards: Tensor, rollout: Rollout, experience: Experience, step: int
) -> tuple[Tensor, dict[str, float]]:
    """R'' plus the entropy-triggered bonus; R'' if no similarity was measured."""
    if experience.alignment is None:
        return rewards, {}
    weight = alignment_weight(
        compute_avg_response_entropy(experience.old.entropy, rollout.response_mask),
        step,
        config.weight,
        config.weight_warmup_steps,
        config.entropy_high_threshold,
    )
    metrics = {
        "actor/repr_align/weight": weight,
        "actor/repr_align/similarity": float(experience.alignment.mean()),
    }
    return rewards + alignment_bonus(experience.alignment, rollout.response_mask, weight), metrics


def reward_length_correlation(rewards: Tensor, response_mask: Tensor) -> dict[str, float]:
    """corr(Σ_t R''_t, length): how far the reward favours length as such."""
    value = correlation(rewards.sum(-1), response_mask.sum(-1))
    return {} if value is None else {f"{PREFIX}/reward_length_corr": value}

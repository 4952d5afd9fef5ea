"""From experience to token-level rewards: blend, then KL, then the alignment bonus.

Pure: tensors and configuration in, tensors and metrics out.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from refblend.config import RefblendConfig
from refblend.config.algorithm import RefQualityScoreConfig, ReprAlignConfig
from refblend.config.scoring import ScoringConfig
from refblend.errors import TrainingError
from refblend.lookup import get_strategy
from refblend.ppo.blending import (
    blend_rewards,
    compute_avg_response_entropy,
    expand_quality,
    mixed_groups,
    shuffle_scores,
)
from refblend.ppo.kl import KLController, apply_kl_penalty, kl_penalty, mean_sequence_kl
from refblend.ppo.masking import masked_mean
from refblend.ppo.methods import prepare
from refblend.ppo.metrics import correlation, expected_calibration_error, roc_auc
from refblend.ppo.weights import StepContext, WeightParams, counterfactual_weights, weight_for
from refblend.rewards.alignment import alignment_bonus, alignment_weight
from refblend.scoring.result import JudgeResult, score_metrics
from refblend.trainer.batch import Experience, Rollout
from refblend.workers.types import response_mask

PREFIX = "actor/ref_quality"
Groups = Sequence[int]


@dataclass(frozen=True)
class BlendContext(StepContext):
    """The step, and what the run has fixed before it."""

    groups: Groups = ()
    """(B,) prompt of each row."""
    initial_entropy: float | None = None
    """H₀ in nats, of the first batch; None in the first step."""
    replayed: tuple[float, ...] = ()
    """Weights of another run, for ``replay``."""


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
    advantage_factors: Tensor | None = None
    """(B,) what the method multiplies the advantages with; None: nothing."""


def blend(
    config: RefQualityScoreConfig,
    rollout: Rollout,
    experience: Experience,
    context: BlendContext,
    control: np.random.Generator,
) -> Blended:
    """R' = (1 − w)R + wQ with w from the actor's entropy, or another method; R if blending is off.

    Greedy baselines are blended with the same w. ``control`` is the control arms' randomness.
    """
    entropy = float(compute_avg_response_entropy(experience.entropy, rollout.response_mask))
    if not math.isfinite(entropy):
        raise TrainingError(
            f"step {context.step}: the actor's average entropy is {entropy}: its log-probs are not "
            "finite",
            "Lower the learning rate or grad_clip and resume from an earlier checkpoint.",
        )
    metrics = {f"{PREFIX}/avg_entropy": entropy}
    mask, weight = rollout.response_mask, torch.zeros(())
    if config.enable:
        own = masked_mean(experience.entropy, mask, dim=-1).tolist()
        weight, of_weight = _weight(config, context, entropy, own)
        metrics |= of_weight
        if experience.quality:
            metrics |= judge_metrics(experience.quality, experience.accuracy)

    def blended(
        rule: Tensor, judged: list[JudgeResult] | None, mask: Tensor, mixed: Tensor, groups: Groups
    ) -> Blended:
        if not config.enable:
            return Blended(expand_quality(rule, mask, "terminal"), None, metrics)
        quality = _quality(config.scoring, judged, len(rule), control)
        weights = _row_weights(config, weight, judged, mask, mixed)
        ready = prepare(config.method, rule, quality, weights, groups)
        placed = expand_quality(ready.quality, mask, config.placement)
        at_end = expand_quality(ready.rule, mask, "terminal")  # verl's convention
        rewards = blend_rewards(at_end, placed, mask, ready.weights)
        return Blended(rewards, None, metrics, quality, ready.weights, ready.advantage_factors)

    mixed = mixed_groups(experience.rule, context.groups)
    found = blended(experience.rule, experience.quality, mask, mixed, context.groups)
    if rollout.greedy is None:
        return found
    assert experience.greedy_rule is not None, "scored with the samples"
    mask = response_mask(rollout.greedy.lengths)
    prompts = list(dict.fromkeys(context.groups))
    mixed = mixed[[context.groups.index(group) for group in prompts]]
    greedy = blended(experience.greedy_rule, experience.greedy_quality, mask, mixed, prompts)
    return replace(found, baselines=greedy.rewards.sum(-1))


def _weight(
    config: RefQualityScoreConfig, context: BlendContext, entropy: float, own: Sequence[float]
) -> tuple[Tensor, dict[str, float]]:
    """w, one number or (B,), and its metrics; ``own`` are the responses' entropies."""
    initial = entropy if context.initial_entropy is None else context.initial_entropy
    try:
        params = WeightParams.of(config, initial, context.replayed)
    except ValueError as error:
        raise TrainingError(
            f"algorithm.ref_quality_score: {error}", "Set entropy_high_threshold to a number."
        ) from None
    strategy = get_strategy(config.strategy)
    at = (context.step, context.total_steps, params)
    if config.entropy_level == "response":
        weight = torch.tensor([weight_for(strategy, each, *at) for each in own])
        mean = float(weight.mean())
    else:
        mean = weight_for(strategy, entropy, *at)
        weight = torch.tensor(mean)
    metrics = {f"{PREFIX}/weight": mean}
    if config.entropy_high_threshold == "auto":
        metrics[f"{PREFIX}/entropy_high_threshold"] = params.entropy_high_threshold
    others = counterfactual_weights(entropy, *at)
    return weight, metrics | {f"{PREFIX}/counterfactual/{name}": w for name, w in others.items()}


def _quality(
    scoring: ScoringConfig,
    results: Sequence[JudgeResult] | None,
    count: int,
    control: np.random.Generator,
) -> Tensor:
    """The scores (B,) to blend."""
    if scoring.control == "random" or results is None:
        return torch.from_numpy(control.random(count, dtype=np.float32))
    quality = torch.tensor([r.score for r in results], dtype=torch.float32)
    return shuffle_scores(quality, control) if scoring.control == "shuffled" else quality


def _row_weights(
    config: RefQualityScoreConfig,
    weight: Tensor,
    results: Sequence[JudgeResult] | None,
    mask: Tensor,
    mixed: Tensor,
) -> Tensor:
    """The weight of each row (B,): w, or less where the configuration says so."""
    weights = weight.expand(len(mask))
    if config.scoring.on_failure == "rule_reward" and results:
        weights = weights * torch.tensor([float(r.valid) for r in results])
    if config.groups == "mixed":
        weights = weights * mixed
    if config.weight_per_length:
        weights = weights / mask.sum(-1).clamp(min=1)
    return weights


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
    kl = kl_penalty(experience.old_log_probs, experience.reference, config.algorithm.kl_penalty)
    current = mean_sequence_kl(kl, rollout.response_mask)
    if not math.isfinite(current):
        # It would stay in the adaptive controller forever.
        raise TrainingError(
            f"the KL penalty (algorithm.kl_penalty={config.algorithm.kl_penalty}) is {current}",
            "Lower the learning rate, or choose another estimator, in another run.",
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
        compute_avg_response_entropy(experience.entropy, rollout.response_mask),
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

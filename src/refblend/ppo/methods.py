"""How the rule's reward R and the judge's score Q are combined: the blend and three published ways.

Every method only prepares what :func:`refblend.ppo.blending.blend_rewards` then mixes as
R' = (1 − w)R + wQ. Notation: B responses, groups are the responses to one prompt.

* ``blend``: nothing to prepare.
* ``recheck``: w = 0 where the rule gives a reward, so that the judge rechecks negatives only. After
  the appeals of arXiv 2510.00915, where a language model reads again what the rule rejected. There
  its answers estimate the rule's rate of false negatives; that they are blended in is our choice.
* ``gdpo`` (arXiv 2601.05242): R and Q are normalised within their group, each for itself, and then
  mixed. The paper's second step, normalisation over the batch, is the estimator's:
  ``reinforce_plus_plus_baseline`` whitens over the batch's tokens, as verl's GDPO does; Dr.GRPO
  leaves the step out.
* ``hero`` (arXiv 2510.07242): the judge's scores are rescaled to [0, 1] within the responses of a
  group that have the same rule reward (a stratum): q̃ = (q − min)/(max − min + ε). The reward is
  R' = R + α(2q̃ − 1), so that with α < ½ no score lifts a wrong response above a right one. A factor
  that grows with the deviation σ of a group's scores then emphasises prompts on which the judge is
  divided: f = f_min + (f_max − f_min)/(1 + e^(−k(σ − σ̄))). Our choices: α is the weight w, one for
  both strata; σ̄ is the mean over the batch's groups, so that a step leaves no hidden state; f
  multiplies the advantages instead of the rewards, which is the same for estimators that are linear
  in the reward, and is not cancelled where GRPO divides by the group's deviation.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from refblend.ppo.advantages import GROUP_EPSILON, GroupIndex, group_moments, group_numbers
from refblend.ppo.choices import Method

HERO_FACTORS = (0.4, 3.0)
"""f_min and f_max of HERO. The formula is checked against summaries of the paper and an independent
implementation. The three constants are not: that implementation has 0.5, 2 and a slope of 5."""
HERO_SLOPE = 6.0
"""k of HERO."""


@dataclass(frozen=True)
class Prepared:
    """What is to be mixed, and a factor of the advantages."""

    rule: Tensor
    """(B,) R."""
    quality: Tensor
    """(B,) Q."""
    weights: Tensor
    """(B,) w."""
    advantage_factors: Tensor | None = None
    """(B,) f of ``hero``."""


def prepare(
    method: Method, rule: Tensor, quality: Tensor, weights: Tensor, groups: GroupIndex
) -> Prepared:
    """R, Q and w of a batch, each (B,), as the method mixes them; ValueError for another name."""
    if method == "blend":
        return Prepared(rule, quality, weights)
    if method == "recheck":
        return Prepared(rule, quality, weights * (rule <= 0))
    if method == "gdpo":
        own = [normalised_in_groups(values, groups) for values in (rule, quality)]
        return Prepared(own[0], own[1], weights)
    if method == "hero":
        # (1 − w)R + w(R + 2q̃ − 1) = R + w(2q̃ − 1)
        shifted = rule + 2 * stratified(quality, rule, groups) - 1
        return Prepared(rule, shifted.to(rule.dtype), weights, hero_factors(quality, groups))
    raise ValueError(f"method={method!r} is unknown")


def normalised_in_groups(values: Tensor, groups: GroupIndex) -> Tensor:
    """(x − mean)/(std + 1e-6) of each value's group, (B,); 0 in a group of one or of equal values.

    The standard deviation is unbiased, as GRPO's.
    """
    exact = values.double()
    sizes, means, deviations = group_moments(exact, groups)
    found = (exact - means) / (torch.where(sizes > 1, deviations, 1.0) + GROUP_EPSILON)
    return found.to(values.dtype)


def stratified(quality: Tensor, rule: Tensor, groups: GroupIndex) -> Tensor:
    """q̃ of each response: its score rescaled to [0, 1] within its group's equal rule rewards.

    0 for the lowest, nearly 1 for the highest; 0 where all scores of a stratum are equal, as the
    paper's formula has it. (B,) float64.
    """
    exact = quality.double()
    numbers = group_numbers(groups, len(rule)).tolist()
    strata = group_numbers(list(zip(numbers, rule.tolist(), strict=True)), len(rule))
    empty = torch.zeros(int(strata.max()) + 1 if len(strata) else 0, dtype=exact.dtype)
    low = empty.scatter_reduce(0, strata, exact, "amin", include_self=False)[strata]
    high = empty.scatter_reduce(0, strata, exact, "amax", include_self=False)[strata]
    return (exact - low) / (high - low + GROUP_EPSILON)


def hero_factors(quality: Tensor, groups: GroupIndex) -> Tensor:
    """f of each response, by the deviation of its group's scores: (B,) in (f_min, f_max)."""
    _, _, deviations = group_moments(quality.double(), groups)
    deviations = torch.nan_to_num(deviations)  # a group of one
    numbers = group_numbers(groups, len(quality))
    firsts = [numbers.tolist().index(group) for group in range(int(numbers.max()) + 1)]
    low, high = HERO_FACTORS
    mean = deviations[firsts].mean()
    return (low + (high - low) * torch.sigmoid(HERO_SLOPE * (deviations - mean))).to(quality.dtype)

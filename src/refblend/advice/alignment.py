"""How well the advantages of a blended reward agree with the truth, with intervals.

**Alignment** of a blend: take the advantages that GRPO would use, A, and the truth of the same
responses, a, both centred within their prompt. Alignment is the cosine of the two over all
responses, Σ A·a / √(ΣA²·Σa²). 1: every update pushes towards right answers, weighted as the truth
would weight it; 0: the updates have nothing to do with it. A prompt whose responses are all right,
or all wrong, has a = 0, so whatever advantage a reward invents there lowers the alignment.

Everything is kept as sums per prompt, because prompts are what a bootstrap draws: one that comes
back in a later step is a group of its own there, for GRPO, but no new prompt.
"""

import functools
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from refblend.ppo.advantages import compute_grpo_outcome_advantage
from refblend.ppo.metrics import grouped_auc

Array = npt.NDArray[np.float64]
Groups = Literal["all", "mixed"]
Where = Literal["terminal", "per_token"]
Level = Literal["response", "prompt"]

WEIGHTS = tuple(round(0.05 * k, 2) for k in range(21))
TILTS = (-1.0, -0.5, -0.25, 0.0, 0.25, 0.5, 1.0)
"""How strongly an entropy map leans on the entropy's rank; see :func:`tilted`."""
RESAMPLES = 2000


@dataclass(frozen=True)
class Blend:
    """One way to blend: the weight, the score's placement, and the groups that get it."""

    weight: float
    placement: Where = "terminal"
    groups: Groups = "all"
    tilt: float = 0.0
    """Of an entropy map; 0: a constant weight."""
    level: Level = "response"
    """Whose entropy a map reads: each response's, or the mean of its prompt's responses."""


@dataclass(frozen=True)
class PromptSums:
    """Σ A·a and ΣA² of C blends and P prompts, (C, P), and Σa², (P,), over labelled responses."""

    cross: Array
    own: Array
    truth: Array

    def alignment(self, counts: Array | None = None) -> Array:
        """Alignment of each blend, (C,); nan if nothing has an advantage.

        ``counts`` (P,) or (B, P): how often each prompt was drawn, giving (C,) or (B, C).
        """
        drawn = np.ones(len(self.truth)) if counts is None else counts
        size = np.sqrt((drawn @ self.own.T) * (drawn @ self.truth)[..., None])
        with np.errstate(invalid="ignore", divide="ignore"):
            found: Array = (drawn @ self.cross.T) / size
        return found


@dataclass(frozen=True)
class Samples:
    """Rollouts as arrays, N responses each, sorted by prompt; see :func:`samples_of`."""

    prompt: npt.NDArray[np.int64]
    """Numbers 0 … P−1."""
    group: npt.NDArray[np.int64]
    """Responses to one prompt in one step; numbers 0 … G−1."""
    reward: Array
    score: Array
    truth: Array
    """nan: not labelled."""
    length: Array | None
    entropy: Array | None

    @functools.cached_property
    def mixed(self) -> npt.NDArray[np.bool_]:
        """Whether the rule rewards of the response's group differ."""
        rewards = pd.Series(self.reward).groupby(self.group)
        return (rewards.transform("max") > rewards.transform("min")).to_numpy()

    @property
    def prompts(self) -> int:
        """P."""
        return int(self.prompt[-1]) + 1

    def sums(self, blends: Sequence[Blend], norm_by_std: bool) -> PromptSums:
        """The sums of these blends; ``norm_by_std=False`` is Dr.GRPO."""
        known = np.isfinite(self.truth)
        prompt, group = self.prompt[known], self.group[known]
        count = np.maximum(np.bincount(group), 1)

        def centred(values: Array) -> Array:
            return values - (np.bincount(group, values) / count)[group]

        def total(values: Array) -> Array:
            return np.bincount(prompt, values, minlength=self.prompts).astype(np.float64)

        right = centred(self.truth[known])
        cross, own = [], []
        for blend in blends:  # one at a time: all advantages of a long run would take gigabytes
            advantages = centred(self._advantages(blend, norm_by_std)[known])
            cross.append(total(advantages * right))
            own.append(total(advantages**2))
        return PromptSums(np.stack(cross), np.stack(own), total(right**2))

    def _advantages(self, blend: Blend, norm_by_std: bool) -> Array:
        weight: Array = np.full(len(self.reward), blend.weight)
        if blend.tilt:
            assert self.entropy is not None, "only blends that the samples allow are asked for"
            weight = tilted(weight, self._entropy_rank(blend.level), blend.tilt)
        if blend.groups == "mixed":
            weight = weight * self.mixed
        quality = self.score
        if blend.placement == "per_token":
            assert self.length is not None, "only blends that the samples allow are asked for"
            quality = quality * self.length
        returns = torch.from_numpy((1 - weight) * self.reward + weight * quality).unsqueeze(-1)
        found, _ = compute_grpo_outcome_advantage(
            returns, torch.ones_like(returns), self.group, norm_by_std
        )
        return found.squeeze(-1).double().numpy()

    def _entropy_rank(self, level: Level) -> Array:
        entropy = pd.Series(self.entropy)
        if level == "prompt":
            entropy = entropy.groupby(self.group).transform("mean")
        return ((entropy.rank() - 0.5) / len(entropy)).to_numpy()


def tilted(weight: Array, rank: Array, tilt: float) -> Array:
    """w·(1 + tilt·(1 − 2·rank)), within [0, 1]: a linear map of the entropy's rank in (0, 1).

    A positive tilt gives less weight at high entropy, as the specification's maps do; the mean
    weight stays w unless the bound bites.
    """
    return np.clip(weight * (1 + tilt * (1 - 2 * rank)), 0.0, 1.0)


def resampled(prompts: int, seed: int = 0) -> Array:
    """How often each prompt is drawn in each bootstrap sample, (B, P)."""
    generator = np.random.default_rng(seed)
    return generator.multinomial(prompts, np.full(prompts, 1 / prompts), size=RESAMPLES).astype(
        np.float64
    )


def interval(values: Array) -> Array:
    """The 2.5 % and 97.5 % quantiles of B bootstrap values, (B, …) → (2, …), without those nan."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "All-NaN slice")  # the quantiles are nan, too
        found: Array = np.nanquantile(values, [0.025, 0.975], axis=0)
    return found


def map_headroom(
    constant: PromptSums, maps: PromptSums, counts: Array
) -> tuple[float, float, float]:
    """What the best entropy map adds to the best constant weight: mean and 95 % interval.

    Both are chosen on a bootstrap sample and compared on the prompts that it left out, so
    choosing among many maps brings no false gain.
    """
    left_out = (counts == 0).astype(np.float64)

    def honest(sums: PromptSums) -> Array:
        best = np.argmax(np.nan_to_num(sums.alignment(counts), nan=-2.0), axis=1)
        return np.take_along_axis(sums.alignment(left_out), best[:, None], axis=1)[:, 0]

    gains = honest(maps) - honest(constant)
    low, high = interval(gains)
    return float(np.nanmean(gains)), float(low), float(high)


def auc_within_prompts(samples: Samples, values: Array) -> float | None:
    """Share of the pairs of a right and a wrong response to one prompt that ``values`` order well.

    Ties count half; None without such a pair. Truths above one half are right.
    """
    known = np.isfinite(samples.truth)
    right = (samples.truth[known] > 0.5).astype(np.float64)
    aucs, pairs = grouped_auc(values[known], right, samples.group[known])
    return float(np.average(aucs, weights=pairs)) if len(aucs) else None

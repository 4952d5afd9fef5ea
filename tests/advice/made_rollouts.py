"""Rollouts made from known probabilities."""

import math

import numpy as np
import pandas as pd

from refblend.advice.alignment import Blend


def rollouts(prompts: int, n: int = 8, flip: float = 0.2, skill: float = 1.0, seed: int = 0):
    """A noisy rule, a judge whose score follows the truth with some skill, and every label."""
    rng = np.random.default_rng(seed)
    easy = rng.random(prompts).repeat(n)
    truth = (rng.random(prompts * n) < easy).astype(float)
    reward = np.where(rng.random(len(truth)) < flip, 1 - truth, truth)
    score = 1 / (1 + np.exp(-(skill * (2 * truth - 1) + rng.normal(size=len(truth)))))
    return pd.DataFrame(
        {
            "prompt_id": np.arange(prompts).repeat(n),
            "reward": reward,
            "judge_score": score,
            "truth": truth,
            "length": rng.integers(5, 40, len(truth)),
            "entropy": rng.random(len(truth)),
        }
    )


def slow_alignment(frame: pd.DataFrame, blend: Blend, by_std: bool = True) -> float:
    """One prompt after another, straight from the definition; every response labelled."""
    cross = own = truth = 0.0
    for _, group in frame.groupby("prompt_id"):
        w = blend.weight
        if blend.groups == "mixed" and group.reward.nunique() == 1:
            w = 0.0
        score = group.judge_score * (group.length if blend.placement == "per_token" else 1)
        returns = (1 - w) * group.reward + w * score
        advantage = returns - returns.mean()
        if by_std:
            advantage = advantage / (returns.std(ddof=1) + 1e-6)
        if returns.nunique() == 1:
            advantage = returns * 0
        right = group.truth - group.truth.mean()
        cross += (advantage * right).sum()
        own += (advantage**2).sum()
        truth += (right**2).sum()
    return cross / math.sqrt(own * truth)

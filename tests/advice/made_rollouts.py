"""Rollouts made from known probabilities."""

import numpy as np
import pandas as pd


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

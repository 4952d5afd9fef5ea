"""The names of the maths' variants, for its signatures and for the configuration; free of torch."""

from typing import Literal, get_args

Ramp = Literal["linear", "sigmoid", "cosine", "exp", "staircase"]
"""A shape in :mod:`refblend.ppo.entropy_maps`."""
Placement = Literal["per_token", "terminal", "per_token_mean"]
"""See :func:`refblend.ppo.blending.expand_quality`."""
PLACEMENTS: tuple[Placement, ...] = get_args(Placement)
ADVANTAGES = ("gae", "grpo", "rloo", "reinforce_plus_plus", "reinforce_plus_plus_baseline", "remax")
"""The estimators of :mod:`refblend.ppo.estimators`; a user's own is named ``module:function``."""
LossAggMode = Literal[
    "token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"
]
"""See :func:`refblend.ppo.losses.agg_loss`."""
KlType = Literal["kl", "k1", "abs", "mse", "k2", "low_var_kl", "k3"]
"""See :func:`refblend.ppo.kl.kl_penalty`."""
CorrectionMode = Literal["off", "truncate", "mask"]
"""See :func:`refblend.ppo.correction.importance_weights`."""
Method = Literal["blend", "recheck", "gdpo", "hero"]
"""See :mod:`refblend.ppo.methods`."""
EntropyLevel = Literal["batch", "response"]
"""Whose entropy gives the weight: the batch's average, or each response's own."""
HERO_MOST = 0.5
"""From this α on, the strata of ``hero`` touch."""

"""The blending weight w as a function of the average entropy H, or of the training step.

ê = clip(H/τ, 0, 1) with τ ``entropy_high_threshold``, both in nats. The formulas are listed in
docs/explanation/algorithms.md. All functions return plain numbers; an entropy may be anything that
``float()`` accepts, so this module needs no torch.
"""

import math
from collections.abc import Callable
from typing import Any, SupportsFloat

from refblend.ppo.choices import Ramp

RAMP_RATE = 5.0
"""k of the exp ramp; the sigmoid ramp uses 2k."""
RAMP_STAIRS = 4


def share(max_weight: float) -> float:
    """``max_weight``, checked to lie in [0, 1]."""
    if not 0.0 <= max_weight <= 1.0:
        raise ValueError(f"max_weight={max_weight} must lie in [0, 1]")
    return float(max_weight)


def warmed_ramp(step: int, steps: float) -> float:
    """Completed share of the ramp at this 1-based step; 1 without a ramp."""
    return 1.0 if steps <= 0 else min(max(step / steps, 0.0), 1.0)


def _sigmoid_ramp(progress: float) -> float:
    def logistic(x: float) -> float:
        return 1.0 / (1.0 + math.exp(-x))

    low, high = logistic(-RAMP_RATE), logistic(RAMP_RATE)
    return (logistic(2.0 * RAMP_RATE * (progress - 0.5)) - low) / (high - low)


RAMPS: dict[str, Callable[[float], float]] = {
    "linear": lambda p: p,
    "cosine": lambda p: 0.5 * (1.0 - math.cos(math.pi * p)),
    "exp": lambda p: (1.0 - math.exp(-RAMP_RATE * p)) / (1.0 - math.exp(-RAMP_RATE)),
    "sigmoid": _sigmoid_ramp,
    "staircase": lambda p: math.floor(p * RAMP_STAIRS + 1e-9) / RAMP_STAIRS,
}
"""Shapes of the step schedule: p in [0, 1] → [0, 1], with f(0) = 0 and f(1) = 1."""


def schedule_weight(
    step: int,
    total_steps: int,
    max_weight: float = 0.3,
    schedule: Ramp = "linear",
    warmup_share: float = 0.5,
) -> float:
    """w = w_max·f(step / (share·total_steps)): a schedule over the steps, independent of entropy.

    Args:
        step: 1-based training step; 0 is before training.
        total_steps: steps of the run.
        max_weight: w_max.
        schedule: the ramp f, one of :data:`RAMPS`.
        warmup_share: share of the steps after which w = w_max; 0: from the start.
    """
    if schedule not in RAMPS:
        raise ValueError(f"schedule={schedule!r} is unknown: use one of {', '.join(RAMPS)}")
    if not 0.0 <= warmup_share <= 1.0:
        raise ValueError(f"schedule_warmup_share={warmup_share} must lie in [0, 1]")
    if step < 0 or total_steps < 1:
        raise ValueError(f"step={step} must be ≥ 0 and total_steps={total_steps} ≥ 1")
    return share(max_weight) * RAMPS[schedule](warmed_ramp(step, warmup_share * total_steps))


def decay_weight(step: int, total_steps: int, max_weight: float = 0.3, *ramp: Any) -> float:
    """w = w_max·(1 − f((step − 1) / (share·total_steps))): the mirror of :func:`schedule_weight`.

    The first step has w_max, and from step share·total_steps + 1 on w is 0. ``ramp`` is schedule
    and warmup_share.
    """
    return share(max_weight) * (1.0 - schedule_weight(max(step - 1, 0), total_steps, 1.0, *ramp))


def entropy_of(avg_entropy: SupportsFloat) -> float:
    """H as a number of nats; NaN is a ValueError."""
    entropy = float(avg_entropy)
    if math.isnan(entropy):
        raise ValueError("avg_entropy is NaN: the actor's log-probs are not finite")
    return entropy


def normalised_entropy(avg_entropy: SupportsFloat, entropy_high_threshold: float) -> float:
    """ê = clip(H/τ, 0, 1), τ > 0; a slightly negative H (rounding) gives 0, infinity gives 1."""
    if not 0.0 < entropy_high_threshold < math.inf:
        raise ValueError(
            f"entropy_high_threshold={entropy_high_threshold} must be positive and finite"
        )
    return min(max(entropy_of(avg_entropy) / entropy_high_threshold, 0.0), 1.0)


def entropy_to_weight_linear(
    avg_entropy: SupportsFloat, max_weight: float = 0.3, entropy_high_threshold: float = 1.0
) -> float:
    """w = w_max·(1 − ê): the default. τ > 0 and w_max in [0, 1], as in every strategy."""
    return share(max_weight) * (1.0 - normalised_entropy(avg_entropy, entropy_high_threshold))


def entropy_to_weight_cosine(
    avg_entropy: SupportsFloat, max_weight: float = 0.3, entropy_high_threshold: float = 1.0
) -> float:
    """w = w_max·½(1 + cos πê): flat at both ends."""
    ratio = normalised_entropy(avg_entropy, entropy_high_threshold)
    return share(max_weight) * 0.5 * (1.0 + math.cos(math.pi * ratio))


def entropy_to_weight_exp(
    avg_entropy: SupportsFloat,
    max_weight: float = 0.3,
    entropy_high_threshold: float = 1.0,
    exp_k: float = 3.0,
) -> float:
    """w = w_max·e^(−k·ê), k > 0: falls early and stays at e^(−k) of the maximum above τ."""
    if not 0.0 < exp_k < math.inf:
        raise ValueError(f"exp_k={exp_k} must be positive and finite")
    ratio = normalised_entropy(avg_entropy, entropy_high_threshold)
    return share(max_weight) * math.exp(-exp_k * ratio)


def entropy_to_weight_piecewise(
    avg_entropy: SupportsFloat,
    max_weight: float = 0.3,
    entropy_high_threshold: float = 1.0,
    entropy_low_threshold: float = 0.3,
) -> float:
    """w_max up to τ_low, 0 from τ on, linear between; 0 ≤ τ_low < τ."""
    normalised_entropy(avg_entropy, entropy_high_threshold)
    if not 0.0 <= entropy_low_threshold < entropy_high_threshold:
        raise ValueError(
            f"entropy_low_threshold={entropy_low_threshold} must lie in "
            f"[0, entropy_high_threshold={entropy_high_threshold})"
        )
    span = entropy_high_threshold - entropy_low_threshold
    excess = (entropy_of(avg_entropy) - entropy_low_threshold) / span
    return share(max_weight) * (1.0 - min(max(excess, 0.0), 1.0))


def entropy_to_weight_constant(avg_entropy: SupportsFloat, max_weight: float = 0.3) -> float:
    """w = w_max whatever the entropy (NaN is an error here too)."""
    entropy_of(avg_entropy)
    return share(max_weight)


def entropy_to_weight_inverse(
    avg_entropy: SupportsFloat, max_weight: float = 0.3, entropy_high_threshold: float = 1.0
) -> float:
    """w = w_max·ê: the opposite direction, more judge where the actor is uncertain."""
    return share(max_weight) * normalised_entropy(avg_entropy, entropy_high_threshold)

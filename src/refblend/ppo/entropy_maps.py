"""The maps from the average entropy H to the blending weight w.

ê = clip(H/τ, 0, 1) with τ ``entropy_high_threshold``, both in nats. The formulas are listed in
docs/explanation/algorithms.md. All functions return plain numbers; an entropy may be anything that
``float()`` accepts, so this module needs no torch.
"""

import math
from typing import SupportsFloat

from refblend.ppo.schedules import share


def entropy_of(avg_entropy: SupportsFloat) -> float:
    """H as a number of nats.

    Raises:
        ValueError: it is NaN.
    """
    entropy = float(avg_entropy)
    if math.isnan(entropy):
        raise ValueError("avg_entropy is NaN: the actor's log-probs are not finite")
    return entropy


def normalised_entropy(avg_entropy: SupportsFloat, entropy_high_threshold: float) -> float:
    """ê = clip(H/τ, 0, 1); a slightly negative H (rounding) gives 0, infinity gives 1.

    Raises:
        ValueError: τ is not a positive finite number, or H is NaN.
    """
    if not 0.0 < entropy_high_threshold < math.inf:
        raise ValueError(
            f"entropy_high_threshold={entropy_high_threshold} must be positive and finite"
        )
    return min(max(entropy_of(avg_entropy) / entropy_high_threshold, 0.0), 1.0)


def entropy_to_weight_linear(
    avg_entropy: SupportsFloat, max_weight: float = 0.3, entropy_high_threshold: float = 1.0
) -> float:
    """w = w_max·(1 − ê): the default.

    Raises:
        ValueError: w_max outside [0, 1], τ ≤ 0, or H is NaN, as in every strategy.
    """
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
    """w = w_max·e^(−k·ê): falls early and stays at e^(−k) of the maximum above τ.

    Raises:
        ValueError: also when k is not positive.
    """
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
    """w_max up to τ_low, 0 from τ on, linear between.

    Raises:
        ValueError: also when not 0 ≤ τ_low < τ.
    """
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

"""Entropy and log-probabilities from logits.

Both refer to softmax(logits / temperature), the distribution that was sampled from (vLLM's
processed log-probs). Logits of −inf (forbidden tokens) contribute nothing.
"""

import torch
from torch import Tensor

from refblend.ppo.masking import upcast


def log_probs_and_entropy(
    logits: Tensor, labels: Tensor, temperature: float = 1.0
) -> tuple[Tensor, Tensor]:
    """log π(label) and the entropy of π = softmax(logits / temperature), both in nats.

    Args:
        logits: (…, V), any floating dtype; the caller bounds how many are held at once.
        labels: (…) token ids at the positions that the logits predict.
        temperature: the sampling temperature, above 0: greedy sampling has no distribution.

    Returns:
        (…) and (…), in at least float32. Gradients flow through both.
    """
    if not temperature > 0:
        raise ValueError(f"temperature={temperature} must be positive")
    scaled = upcast(logits) / temperature
    normaliser = torch.logsumexp(scaled, dim=-1)
    log_probs = scaled.gather(-1, labels.unsqueeze(-1)).squeeze(-1) - normaliser
    finite = scaled.masked_fill(scaled == -torch.inf, 0.0)
    entropy = normaliser - ((scaled - normaliser.unsqueeze(-1)).exp() * finite).sum(dim=-1)
    return log_probs, entropy

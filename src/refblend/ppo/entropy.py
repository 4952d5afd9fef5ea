"""Entropy and log-probabilities from logits, in chunks so that float32 copies stay small.

Both refer to softmax(logits / temperature), the distribution that was sampled from (vLLM's
processed log-probs). Logits of −inf (forbidden tokens) contribute nothing.
"""

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from refblend.ppo.masking import upcast

CHUNK_TOKENS = 2048
"""Rows of the logits processed at once: 2048 × 150,000 × 4 bytes = 1.2 GB at most."""


def _chunk(logits: Tensor, labels: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    scaled = upcast(logits) / temperature
    normaliser = torch.logsumexp(scaled, dim=-1)
    log_probs = scaled.gather(-1, labels.unsqueeze(-1)).squeeze(-1) - normaliser
    finite = scaled.masked_fill(scaled == -torch.inf, 0.0)
    entropy = normaliser - ((scaled - normaliser.unsqueeze(-1)).exp() * finite).sum(dim=-1)
    return log_probs, entropy


def log_probs_and_entropy(
    logits: Tensor, labels: Tensor, temperature: float = 1.0, chunk_tokens: int = CHUNK_TOKENS
) -> tuple[Tensor, Tensor]:
    """log π(label) and the entropy of π = softmax(logits / temperature), both in nats.

    If gradients are needed and there is more than one chunk, each chunk's float32 work is
    recomputed in the backward pass, so that at most one chunk is held in memory.

    Args:
        logits: (…, V), any floating dtype; never copied to float32 as a whole.
        labels: (…) token ids at the positions that the logits predict.
        temperature: the sampling temperature.
        chunk_tokens: positions processed at once.

    Returns:
        (…) and (…), in at least float32. Gradients flow through both.

    Raises:
        ValueError: the temperature is not positive (greedy sampling has no distribution).
    """
    if not temperature > 0:
        raise ValueError(f"temperature={temperature} must be positive")
    if chunk_tokens < 1:
        raise ValueError(f"chunk_tokens={chunk_tokens} must be at least 1")
    rows, ids = logits.reshape(-1, logits.shape[-1]), labels.reshape(-1)
    recompute = torch.is_grad_enabled() and rows.requires_grad and rows.shape[0] > chunk_tokens
    log_probs, entropies = [], []
    for start in range(0, max(1, rows.shape[0]), chunk_tokens):
        part = (rows[start : start + chunk_tokens], ids[start : start + chunk_tokens], temperature)
        if recompute:
            result = checkpoint(_chunk, *part, use_reentrant=False, preserve_rng_state=False)
        else:
            result = _chunk(*part)
        log_probs.append(result[0])
        entropies.append(result[1])
    return torch.cat(log_probs).reshape(labels.shape), torch.cat(entropies).reshape(labels.shape)

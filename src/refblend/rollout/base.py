"""The interface of a generation engine and the typed values that cross it.

An engine answers token ids with token ids. Each request has its own seed, so neither the
order nor the size of a batch changes a sample; each answer names the weight version it came from.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from refblend.errors import ModelError

if TYPE_CHECKING:
    import torch

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One prompt and how to sample from it."""

    prompt_ids: Sequence[int]
    max_new_tokens: int
    temperature: float = 1.0
    """0 is greedy."""
    seed: int = 0
    log_probs: bool = True
    """Whether the sampled tokens' log-probs are wanted; engines are faster without."""
    top_logprobs: int = 0
    """Number of alternatives to return for each position, besides the sampled token."""
    ignore_eos: bool = False
    """Go on past the end token: the answer has all of its ``max_new_tokens``."""
    regex: str | None = None
    """The answer matches it as a whole; log-probs are those of the restricted distribution."""

    def __post_init__(self) -> None:
        if self.top_logprobs and not self.log_probs:
            raise ValueError(f"top_logprobs={self.top_logprobs} needs log_probs")


@dataclass(frozen=True, slots=True)
class Generation:
    """The engine's answer to one request."""

    token_ids: list[int]
    log_probs: list[float]
    """log π of each sampled token under the sampling distribution (after temperature); empty when
    not asked for."""
    finish_reason: FinishReason
    weight_version: int
    top_logprobs: list[dict[int, float]] | None = None
    """For each position: token id → log-prob, when asked for."""


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """What an engine needs to start."""

    model_path: str
    max_model_len: int | None = None
    dtype: Literal["float32", "bfloat16"] = "float32"
    kv_cache_memory_mb: int = 256
    gpu_memory_utilization: float = 0.65
    tensor_parallel_size: int = 1
    enforce_eager: bool = True
    enable_prefix_caching: bool = True
    max_num_seqs: int = 256
    seed: int = 0


class RolloutEngine(Protocol):
    """What the trainer, the judge and the evaluation use."""

    max_model_len: int
    weight_version: int

    def generate(self, requests: Sequence[GenerationRequest]) -> list[Generation]:
        """Answer all requests, in their order.

        Raises:
            OverlengthError: a prompt leaves no room for one new token; nothing was generated.
        """
        ...

    def load_weights(self, weights: "Mapping[str, torch.Tensor]", version: int) -> None:
        """Replace the weights (Hugging Face names) and drop every cache made with the old ones."""
        ...

    def reset_prefix_cache(self) -> None:
        """Forget every cached prompt, and reset the hit counters."""
        ...

    def prefix_cache_hit_rate(self) -> float | None:
        """Share of prompt tokens served from the cache since its last reset; None when unknown."""
        ...

    def shutdown(self) -> None:
        """Free the engine's memory."""
        ...


class OverlengthError(ModelError):
    """Requests that do not fit into the engine; ``indices`` names them."""

    def __init__(self, indices: list[int], limit: int) -> None:
        super().__init__(
            f"{len(indices)} prompts leave no room for a new token within {limit} tokens",
            "Shorten the prompts or raise max_model_len.",
        )
        self.indices = indices
        self.limit = limit

    def __reduce__(self) -> tuple[type, tuple[list[int], int]]:  # type: ignore[override]
        return type(self), (self.indices, self.limit)


def check_lengths(requests: Sequence[GenerationRequest], limit: int) -> None:
    """Refuse a batch with prompts of ``limit`` tokens or more, before any work starts.

    vLLM fails the entire call for one overlong prompt, so engines check first.
    """
    overlong = [i for i, r in enumerate(requests) if len(r.prompt_ids) >= limit]
    if overlong:
        raise OverlengthError(overlong, limit)

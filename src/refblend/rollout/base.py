"""The interface of a generation engine, and the typed values that cross it.

An engine answers token ids with token ids. Each request has its own seed, so neither the
order nor the size of a batch changes a sample; each answer names the weight version it came from.

A batch may be dealt out among several engines (:func:`split_rows`). All rows with one key (a
prompt, a question) go to one engine, whose prefix cache then serves them. The keys are dealt out
longest first, each to the engine with the least work so far (Graham's LPT rule). An answer does not
depend on its engine: it is the same bit for bit where the engine's arithmetic does not depend on
its batch, as vLLM's on the CPU, and up to rounding elsewhere.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

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
    tensor_model_parallel_size: int = 1
    enforce_eager: bool = True
    enable_prefix_caching: bool = True
    lora_rank: int = 0
    """Of the adapter that pushes bring, instead of weights; 0: they bring weights."""
    lora_alpha: float = 16.0
    max_num_seqs: int = 256
    enable_chunked_prefill: bool = False
    sleep: bool = False
    engine_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of the engine's own library."""
    seed: int = 0


class RolloutEngine(Protocol):
    """What the trainer, the judge and the evaluation use."""

    max_model_len: int
    weight_version: int

    def generate(self, requests: Sequence[GenerationRequest]) -> list[Generation]:
        """Answer all requests, in their order; OverlengthError, at once, if one has no room."""

    def load_weights(self, weights: "Mapping[str, torch.Tensor]", version: int) -> None:
        """Replace the weights (Hugging Face names) and drop every cache made with the old ones."""

    def reset_prefix_cache(self) -> None:
        """Forget every cached prompt."""

    def shutdown(self) -> None:
        """Free the engine's memory."""


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


@dataclass(frozen=True)
class Work:
    """What a batch of requests is expected to cost, row by row."""

    keys: Sequence[Hashable]
    """Rows with equal keys share a prefix, and so an engine."""
    prefix: Sequence[float]
    """Tokens that the rows of a key have in common: counted once."""
    own: Sequence[float]
    """Tokens of the row itself."""


def split_rows(work: Work, engines: int) -> list[list[int]]:
    """The rows of each engine, in the order of the batch; an engine may get none."""
    rows: dict[Hashable, list[int]] = {}
    for row, key in enumerate(work.keys):
        rows.setdefault(key, []).append(row)

    def cost(key: Hashable) -> float:
        return max(work.prefix[row] for row in rows[key]) + sum(work.own[row] for row in rows[key])

    shares: list[list[int]] = [[] for _ in range(engines)]
    loads = [0.0] * engines
    costs = {key: cost(key) for key in rows}
    for key in sorted(rows, key=lambda key: -costs[key]):
        least = loads.index(min(loads))
        shares[least] += rows[key]
        loads[least] += costs[key]
    return [sorted(share) for share in shares]


def work_of(requests: Sequence[GenerationRequest]) -> Work:
    """What generation is expected to cost; the requests of one prompt share an engine."""
    prompts = [tuple(r.prompt_ids) for r in requests]
    return Work(prompts, list(map(len, prompts)), [r.max_new_tokens for r in requests])

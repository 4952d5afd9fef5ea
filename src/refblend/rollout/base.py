"""The interface of a generation engine and the typed values that cross it.

An engine answers token ids with token ids. Each request has a seed of its own, so neither the
order nor the size of a batch changes a sample; each answer names the weight version it came from.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import torch

from refblend.data.tokenizer import load_tokenizer
from refblend.documents import show
from refblend.errors import ConfigError, ModelError
from refblend.files import read_object

FinishReason = Literal["stop", "length"]
_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w.-]+")


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
    """How many alternatives to return for each position, beside the sampled token."""

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

    def load_weights(self, weights: Mapping[str, torch.Tensor], version: int) -> None:
        """Replace the weights (Hugging Face names) and drop every cache made with the old ones."""
        ...

    def reset_prefix_cache(self) -> None:
        """Forget every cached prompt, and count hits anew."""
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

    vLLM itself fails the whole call for one overlong prompt, so engines check first.
    """
    overlong = [i for i, r in enumerate(requests) if len(r.prompt_ids) >= limit]
    if overlong:
        raise OverlengthError(overlong, limit)


def count_shortened(requests: Sequence[GenerationRequest], limit: int) -> int:
    """Requests whose answer may be cut because prompt + max_new_tokens exceeds ``limit``.

    vLLM shortens such answers silently.
    """
    return sum(len(r.prompt_ids) + r.max_new_tokens > limit for r in requests)


def check_model_dir(path: str, key: str) -> Path:
    """The directory, when it holds a configuration and safetensors weights.

    Raises:
        ModelError: it does not; names the configuration key that pointed to it.
    """
    directory = Path(path)
    if not directory.is_dir():
        remedy = "Give a local model directory."
        if _HUB_ID.fullmatch(path) and not directory.parent.exists():
            local = f"models/{directory.name}"
            remedy = (
                "If it names a model of the Hugging Face hub, download it with "
                f"`hf download {path} --local-dir {local}` and give {local}."
            )
        raise ModelError(f"{key}: {directory} is not a directory", remedy)
    if not (directory / "config.json").is_file():
        raise ModelError(
            f"{key}: {directory} has no config.json", "Give a directory in Hugging Face format."
        )
    if not any(directory.glob("*.safetensors")):
        raise ModelError(
            f"{key}: {directory} holds no weights (*.safetensors)",
            "Convert the weights to safetensors or fetch the complete model.",
        )
    return directory


def model_record(path: Path) -> dict[str, Any]:
    """A JSON file of a model directory.

    Raises:
        ModelError: it cannot be read or does not hold a JSON object.
    """
    try:
        return read_object(path)
    except (OSError, ValueError) as error:
        raise ModelError(
            f"{path} cannot be read ({error})", "Fetch or save the model again."
        ) from None


def positions_of(directory: Path) -> int | None:
    """``max_position_embeddings`` of a model; None when its configuration names none.

    Raises:
        ModelError: config.json cannot be read, or has something else there.
    """
    positions = model_record(directory / "config.json").get("max_position_embeddings")
    if positions is None or (type(positions) is int and positions > 0):
        return positions
    raise ModelError(
        f"{directory / 'config.json'}: max_position_embeddings is {show(positions)}",
        "Give the number of positions, or fetch the model again.",
    )


def stop_token_ids(directory: Path) -> frozenset[int]:
    """Tokens that end an answer: those of the generation and model configurations and the
    tokenizer's own. Chat models often name several, each in another file.
    """
    found: set[int] = set()
    for name in ("generation_config.json", "config.json"):
        if (directory / name).is_file():
            ids = model_record(directory / name).get("eos_token_id")
            listed = ids if isinstance(ids, list) else [] if ids is None else [ids]
            if any(type(token) is not int for token in listed):
                raise ModelError(
                    f"{directory / name}: eos_token_id is {show(ids)}",
                    "Give the number of a token or a list of such numbers.",
                )
            found.update(listed)
    if (directory / "tokenizer_config.json").is_file():
        own = load_tokenizer(directory).eos_token_id
        found.update([] if own is None else [own])
    return frozenset(found)


def resolve_max_model_len(directory: Path, wanted: int | None) -> int:
    """The engine's length: ``wanted``, or what the model allows when that is None.

    Raises:
        ModelError: the model has fewer positions and does not rescale them.
    """
    config = model_record(directory / "config.json")
    positions = positions_of(directory)
    scaling = config.get("rope_scaling") or config.get("rope_parameters") or {}
    if not isinstance(scaling, dict):
        raise ModelError(
            f"{directory / 'config.json'}: rope_scaling is {show(scaling)}",
            "Give an object or null, or fetch the model again.",
        )
    rescaled = scaling.get("rope_type", "default") != "default"
    if wanted is None:
        if positions is None:
            raise ModelError(
                f"{directory}: config.json has no max_position_embeddings", "Set max_model_len."
            )
        return positions
    if positions is not None and wanted > positions and not rescaled:
        raise ModelError(
            f"max_model_len={wanted} is more than the {positions} positions of {directory}",
            f"Lower it to {positions}.",
        )
    return wanted


def start_engine(name: str, options: EngineOptions) -> RolloutEngine:
    """Start the engine of that name (``vllm`` or ``hf``); imports its library only then."""
    if name == "vllm":
        from refblend.rollout.vllm_engine import VllmEngine

        return VllmEngine(options)
    if name == "hf":
        from refblend.rollout.hf_engine import HfEngine

        return HfEngine(options)
    raise ConfigError(f"unknown rollout engine {name!r}", "Use vllm or hf.")

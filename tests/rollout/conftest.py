"""One real engine of each kind a module, and the transformers model as the oracle."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from refblend.rollout.base import EngineOptions, Generation, GenerationRequest, RolloutEngine
from refblend.rollout.factory import start_engine


@pytest.fixture(scope="module")
def vllm_engine(tiny_model_dir: Path) -> Iterator[RolloutEngine]:
    engine = start_engine("vllm", EngineOptions(str(tiny_model_dir), kv_cache_memory_mb=64))
    yield engine
    engine.shutdown()


@pytest.fixture(scope="module")
def hf_engine(tiny_model_dir: Path) -> RolloutEngine:
    return start_engine("hf", EngineOptions(str(tiny_model_dir)))


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> RolloutEngine:
    """The engine named by ``@pytest.mark.parametrize("engine", …, indirect=True)``."""
    found: RolloutEngine = request.getfixturevalue(f"{request.param}_engine")
    return found


@pytest.fixture(scope="module")
def model(tiny_model_dir: Path) -> torch.nn.Module:
    return AutoModelForCausalLM.from_pretrained(tiny_model_dir, dtype=torch.float32)


def make_requests(
    count: int, vocab: int, temperature: float = 1.0, new: int = 12, **more: int
) -> list[GenerationRequest]:
    """Prompts of 5 to 60 tokens, so that every batch is padded unevenly."""
    rng = torch.Generator().manual_seed(7)
    lengths = torch.randint(5, 60, (count,), generator=rng).tolist()
    return [
        GenerationRequest(
            torch.randint(3, vocab, (n,), generator=rng).tolist(),
            new,
            temperature,
            1000 + i,
            **more,
        )
        for i, n in enumerate(lengths)
    ]


@pytest.fixture
def requests_of(model: torch.nn.Module) -> Callable[..., list[GenerationRequest]]:
    def make(count: int, temperature: float = 1.0, new: int = 12, **more: int):
        return make_requests(count, model.config.vocab_size, temperature, new, **more)

    return make


@torch.no_grad()
def oracle_log_probs(
    model: torch.nn.Module, prompt: Sequence[int], tokens: Sequence[int], temperature: float
) -> list[float]:
    """log_softmax(logits / T) of one sequence without padding or cache."""
    logits = model(torch.tensor([[*prompt, *tokens]])).logits[0].double()
    log_p = torch.log_softmax(logits / temperature, dim=-1)
    return [float(log_p[len(prompt) - 1 + t, token]) for t, token in enumerate(tokens)]


def largest_gap(
    model: torch.nn.Module, requests: Sequence[GenerationRequest], generations: Sequence[Generation]
) -> float:
    """Largest |engine log-prob − oracle log-prob| over all tokens; greedy counts as T = 1."""
    return max(
        abs(ours - expected)
        for r, g in zip(requests, generations, strict=True)
        for ours, expected in zip(
            g.log_probs,
            oracle_log_probs(model, r.prompt_ids, g.token_ids, r.temperature or 1.0),
            strict=True,
        )
    )


@pytest.fixture
def gap() -> Callable[..., float]:
    return largest_gap

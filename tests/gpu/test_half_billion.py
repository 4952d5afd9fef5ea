"""Actor update, log-probs, scoring and checkpoint at 0.5B in bfloat16, against float32.

The tolerances are those of bfloat16's eight bits of precision through 24 layers; a wrong position,
mask or temperature moves every figure by far more.
"""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import Tensor

from refblend.config import RefblendConfig
from refblend.data.tokenizer import load_tokenizer
from refblend.rollout.base import EngineOptions, GenerationRequest
from refblend.rollout.factory import start_engine
from refblend.scoring.generative import GenerativeJudge
from refblend.scoring.judge import judge_config
from refblend.workers.fsdp_workers import ActorWorker
from refblend.workers.types import MiniBatch, PolicyTargets, Sequences, response_mask

pytestmark = pytest.mark.gpu

Config = Callable[[str], RefblendConfig]
Row = Callable[[str, str], None]
PRECISIONS = ("float32", "bfloat16")
PLAN = [[0, 1, 2], [3, 4], [5, 6, 7]]


@pytest.fixture(scope="module")
def sequences() -> Sequences:
    """Eight rows of uneven lengths, one response empty."""
    rng = torch.Generator().manual_seed(0)

    def draw(count: int) -> list[int]:
        return torch.randint(0, 151936, (count,), generator=rng).tolist()

    lengths = [(90, 64), (48, 64), (33, 40), (90, 17), (60, 0), (12, 55), (48, 31), (7, 1)]
    return Sequences([draw(p) for p, _ in lengths], [draw(r) for _, r in lengths])


@contextmanager
def measured(table: Row, what: str, device: torch.device) -> Iterator[None]:
    """Seconds and peak memory of the block, as a row."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.synchronize()
    start = time.perf_counter()
    yield
    if device.type == "cuda":
        torch.cuda.synchronize()
    text = f"{time.perf_counter() - start:.2f} s"
    if device.type == "cuda":
        text += f", peak {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB"
    table(what, text)


def free() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def log_probs_of(worker: ActorWorker, sequences: Sequences) -> tuple[Tensor, ...]:
    order, matrices = worker.compute_log_prob(sequences, PLAN)
    assert order == list(range(8))
    return matrices


def test_update_log_probs_and_checkpoint(
    worker_config: Config, sequences: Sequences, device: torch.device, table: Row, tmp_path: Path
) -> None:
    mask = response_mask(sequences.response_lengths, sequences.response_width)
    rng = torch.Generator().manual_seed(1)
    found: dict[str, tuple[Tensor, ...]] = {}
    metrics: dict[str, dict[str, float]] = {}
    for dtype in PRECISIONS:
        worker = ActorWorker(worker_config(dtype), 3)
        with measured(table, f"log-probs and entropy, {dtype}", device):
            before = log_probs_of(worker, sequences)
        found[dtype] = before
        rng.manual_seed(1)
        advantages = torch.randn(mask.shape, generator=rng) * mask
        targets = PolicyTargets(mask, before[0], advantages)
        mini = MiniBatch(PLAN, float(mask.sum()), 7)
        with measured(table, f"actor update, {dtype}", device):
            metrics[dtype] = worker.update(sequences, targets, [mini], 1)
        after = log_probs_of(worker, sequences)
        assert (after[0] - before[0]).abs().max() > 1e-3, "the update had an effect"
        if dtype == "bfloat16":
            with measured(table, "checkpoint saved and loaded", device):
                worker.save(str(tmp_path / "saved"))
                worker.load(str(tmp_path / "saved"))
            restored = log_probs_of(worker, sequences)
            assert all(map(torch.equal, restored, after))
            assert worker.update(sequences, targets, [mini], 2)["nonfinite"] == 0, "it goes on"
        del worker
        free()
    selected, pairs = mask.bool(), zip(found["float32"], found["bfloat16"], strict=True)
    for name, (exact, rough) in zip(("log_probs", "entropy"), pairs, strict=True):
        gap = (exact - rough)[selected].abs()
        table(f"{name}: bfloat16 against float32", f"mean {gap.mean():.4f}, max {gap.max():.4f}")
        assert gap.mean() < 0.02
        assert gap.max() < 0.2
    norms = [metrics[dtype]["grad_norm"] for dtype in PRECISIONS]
    table("gradient norm, float32 and bfloat16", f"{norms[0]:.4f}, {norms[1]:.4f}")
    assert norms[1] == pytest.approx(norms[0], rel=0.05)
    assert metrics["bfloat16"]["pg_loss"] == pytest.approx(metrics["float32"]["pg_loss"], abs=0.01)


def test_scoring(half_billion_dir: Path, device: torch.device, table: Row) -> None:
    """Random weights write no score; what is compared is the distribution of the first token."""
    tokenizer = load_tokenizer(half_billion_dir)
    config = judge_config("m", "hf", "embedded", {"max_new_tokens": 4, "few_shot": False})
    firsts: dict[str, list[dict[int, float]]] = {}
    for dtype in PRECISIONS:
        engine = start_engine("hf", EngineOptions(str(half_billion_dir), 768, dtype=dtype))
        judge = GenerativeJudge(engine, tokenizer, config)
        with measured(table, f"scoring of 4 responses, {dtype}", device):
            results = judge.score(["2 + 3?"] * 4, ["2+3=5", "2+3=6", "5", ""])
        assert len(results) == 4
        assert all(0 <= r.score <= 1 for r in results)
        assert not any(r.path == "error" for r in results)
        prompts = [judge.plan("2 + 3?", text).token_ids for text in ("2+3=5", "5")]
        answers = engine.generate([GenerationRequest(p, 1, 0.0, top_logprobs=20) for p in prompts])
        firsts[dtype] = [a.top_logprobs[0] for a in answers if a.top_logprobs]
        assert len(firsts[dtype]) == 2
        engine.shutdown()
        del engine, judge
        free()
    gaps = [
        abs(exact[token] - rough[token])
        for exact, rough in zip(firsts["float32"], firsts["bfloat16"], strict=True)
        for token in exact.keys() & rough.keys()
    ]
    assert len(gaps) >= 10, "the most probable tokens are mostly the same"
    table("scoring: log-probs of the most likely tokens, bfloat16", f"max gap {max(gaps):.4f}")
    assert max(gaps) < 0.2

"""The real model on both engines: the same log-probs, a shared prefix, guided scores."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from refblend.data.tokenizer import encode_chat
from refblend.rollout.base import EngineOptions, GenerationRequest, RolloutEngine
from refblend.rollout.factory import start_engine
from refblend.scoring.generative import GenerativeJudge
from refblend.scoring.judge import judge_config
from refblend.scoring.result import score_metrics

pytestmark = [pytest.mark.real, pytest.mark.engine, pytest.mark.slow]


@pytest.fixture(scope="module")
def vllm(smollm_dir: Path) -> Iterator[RolloutEngine]:
    engine = start_engine("vllm", EngineOptions(str(smollm_dir), 768, kv_cache_memory_mb=512))
    yield engine
    engine.shutdown()


def test_both_engines_agree_on_log_probs(vllm, smollm_dir, smollm_tokenizer) -> None:
    questions = ["4 - 1 =", "Was ist 日本語? 🙂", "98 + 93 - 77 ="]
    prompts = [encode_chat(smollm_tokenizer, [{"role": "user", "content": q}]) for q in questions]
    requests = [GenerationRequest(prompt, 12, 0.0) for prompt in prompts]
    hf = start_engine("hf", EngineOptions(str(smollm_dir), 768))
    for ours, theirs in zip(vllm.generate(requests), hf.generate(requests), strict=True):
        assert ours.token_ids == theirs.token_ids
        assert ours.log_probs == pytest.approx(theirs.log_probs, abs=1e-3)
    hf.shutdown()


def test_the_judge_is_valid_when_guided(vllm, smollm_tokenizer) -> None:
    responses = [f"12-5={i}.\n#### {i} <|im_end|> \\box{{1.00}} 🙂" for i in range(8)]
    rates = {}
    for decoding in ("guided", "free"):
        config = judge_config("m", "vllm", None, {"max_new_tokens": 24, "decoding": decoding})
        judge = GenerativeJudge(vllm, smollm_tokenizer, config)
        results = judge.score(["12 - 5 ="] * 8, responses)
        rates[decoding] = score_metrics(results)["actor/ref_quality/valid_rate"]
    assert rates["guided"] == 1.0
    assert rates["free"] < 1.0

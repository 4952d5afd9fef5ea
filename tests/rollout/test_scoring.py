"""The judge on real vLLM with a random model: typed results, and the shared prefix is cached."""

from collections import Counter

import pytest

from refblend.data.tokenizer import load_tokenizer
from refblend.embedded.problems import iterate_problems
from refblend.rollout.base import EngineOptions
from refblend.rollout.factory import start_engine
from refblend.scoring.clipping import ScoringLimits
from refblend.scoring.generative import GenerativeJudge, JudgeOptions
from refblend.scoring.templates import load_templates

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def judge(tiny_model_dir):
    engine = start_engine("vllm", EngineOptions(str(tiny_model_dir), kv_cache_memory_mb=64))
    limits = ScoringLimits(engine.max_model_len, None, max_new_tokens=32)
    yield GenerativeJudge(
        engine,
        load_tokenizer(tiny_model_dir),
        load_templates("embedded"),
        JudgeOptions(limits, score_mode="expected"),
    )
    engine.shutdown()


def test_garbage_of_a_random_judge_gives_typed_results(judge) -> None:
    problems = [p for p, _ in zip(iterate_problems("train", 1), range(96), strict=False)]
    questions = [p.question for p in problems]
    results = judge.score(questions, [p.solution for p in problems], list(range(96)))
    assert len(results) == 96
    assert all(0.0 <= r.score <= 1.0 for r in results)
    assert all(r.score == 0.5 for r in results if not r.valid)
    paths = Counter(r.path for r in results)
    assert paths["error"] == paths["overlength"] == 0
    # Embedded prompts share only some 120 tokens; vLLM shares whole blocks of 32.
    rate = judge.last_call.prefix_cache_hit_rate
    assert rate > 0.4
    print(f"prefix cache hit rate {rate:.3f}, paths {dict(paths)}")

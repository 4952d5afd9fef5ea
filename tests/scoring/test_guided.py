"""Guided decoding: the expression, its configuration, and both engines under it."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refblend.data.tokenizer import load_tokenizer
from refblend.rollout.base import EngineOptions, GenerationRequest
from refblend.rollout.factory import start_engine
from refblend.scoring.generative import GenerativeJudge, guided_regex
from refblend.scoring.judge import judge_config
from refblend.scoring.parsing import parse_score
from refblend.scoring.result import score_metrics

NEW_TOKENS = 24


@pytest.mark.parametrize(
    ("answer", "allowed"),
    [
        (r"\box{0.37}", True),
        (r"\box{1}", True),
        (r"12-5=7, ok. \box{0.05}", True),
        (r"12345678901234\box{0.37}", True),
        (r"123456789012345\box{0.37}", False),  # 25 characters
        (r"\box{1.01}", False),
        (r"\box{0.5}", False),
        (r"\box{0.37} sure", False),
        ("7\n\\box{0.37}", False),
        (r"\box{0.1}\box{0.37}", False),
        ("seven € \\box{0.37}", False),  # three bytes, perhaps three tokens
    ],
)
def test_the_expression(answer: str, allowed: bool) -> None:
    assert bool(re.fullmatch(guided_regex(NEW_TOKENS), answer)) is allowed


@given(st.from_regex(guided_regex(64), fullmatch=True))
def test_every_match_is_a_valid_score_and_fits(answer: str) -> None:
    parsed = parse_score(answer)
    assert parsed.valid
    assert parsed.path == "text"
    assert len(answer.encode()) <= 64
    assert answer.endswith(f"box{{{parsed.score:.2f}}}") or answer.endswith("box{1}")


def test_only_a_guided_judge_sends_the_expression(chat_tokenizer, scripted) -> None:
    for decoding, regex in [("free", None), ("guided", guided_regex(NEW_TOKENS))]:
        tree = {"max_new_tokens": NEW_TOKENS, "decoding": decoding}
        engine = scripted(chat_tokenizer, lambda _: "\\box{0.9}")
        config = judge_config("m", "hf", "embedded", tree)
        GenerativeJudge(engine, chat_tokenizer, config).score(["q"], ["a"])
        assert [r.regex for r in engine.calls[0]] == [regex]


@pytest.mark.parametrize("kind", ["hf", pytest.param("vllm", marks=pytest.mark.engine)])
def test_a_random_judge_always_gives_a_valid_score(kind, tiny_model_dir) -> None:
    """Its weights know no box, and more token ids than its tokenizer; only the guide helps."""
    engine = start_engine(kind, EngineOptions(str(tiny_model_dir), kv_cache_memory_mb=64))
    tokenizer = load_tokenizer(tiny_model_dir)
    responses = [f"12-5={i}.\n#### {i}" for i in range(24)]
    questions = ["Eva finds 12 pens. Then 5 get lost."] * 24
    for temperature in (0.0, 1.0):
        rates, scores = {}, set()
        for decoding in ("free", "guided"):
            way = {"temperature": temperature, "decoding": decoding, "max_new_tokens": NEW_TOKENS}
            judge = GenerativeJudge(engine, tokenizer, judge_config("m", "hf", "embedded", way))
            results = judge.score(questions, responses, range(24))
            rates[decoding] = score_metrics(results)["actor/ref_quality/valid_rate"]
            if judge.regex:
                assert all(re.fullmatch(judge.regex, r.raw) for r in results)
                assert all(0 <= r.score <= 1 for r in results)
                scores = {r.score for r in results}
        assert rates["free"] < 0.2
        assert rates["guided"] == 1.0
        assert len(scores) > 5
    engine.shutdown()


def test_guided_and_free_requests_share_a_batch(make_tiny_model) -> None:
    """The guide of one request leaves the others alone; a padded vocabulary is masked too."""
    path = make_tiny_model(3, vocab_size=512)
    engine = start_engine("hf", EngineOptions(str(path)))
    tokenizer = load_tokenizer(path)
    assert len(tokenizer) < 512
    free = [GenerationRequest([5, 6, 7 + i], 12, 1.0, seed=i) for i in range(8)]
    guided = [GenerationRequest([5, 6, 7 + i], 12, 1.0, seed=i, regex="[ab]{5}") for i in range(8)]
    alone = engine.generate(free)
    together = engine.generate([r for pair in zip(free, guided, strict=True) for r in pair])
    assert [g.token_ids for g in together[::2]] == [g.token_ids for g in alone]
    texts = [tokenizer.decode(g.token_ids, skip_special_tokens=True) for g in together[1::2]]
    assert all(re.fullmatch("[ab]{5}", text) for text in texts)
    assert all(g.finish_reason == "stop" for g in together[1::2])
    assert len(set(texts)) > 3

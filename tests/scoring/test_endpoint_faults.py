"""A judge's endpoint that goes wrong in the ways of the field; see ``fault_server.FAULTS``."""

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fault_server import TOO_LONG, Endpoint, completion, config, judge

from refblend.errors import ScoringError
from refblend.scoring.judge import check_judge, start_judge
from refblend.scoring.result import JudgeResult
from refblend.scoring.wire import is_too_long


def ask(endpoint: Endpoint, fault: str, http: Any = None, **scoring: Any) -> JudgeResult:
    endpoint.fail(fault)
    (result,) = judge(endpoint, http, **scoring).score(["q"], ["a"])
    return result


def test_an_attempt_has_a_deadline_as_a_whole(endpoint: Endpoint) -> None:
    """The body comes a byte every 0.05 s, about 15 s in all."""
    start = time.monotonic()
    result = ask(endpoint, "drip", {"timeout_s": 0.3, "max_retries": 1})
    assert (result.valid, result.path) == (False, "error")
    assert "in time" in result.raw
    assert 0.6 <= time.monotonic() - start < 4.0, "two attempts and a pause"
    assert len(endpoint.bodies) == 2


def test_a_process_has_one_limiter_and_one_client(endpoint: Endpoint) -> None:
    """Twenty-four threads ask one response each, as verl's reward workers do."""

    def answer(body: dict[str, Any]) -> tuple[int, Any]:
        time.sleep(0.02)
        return 200, completion("\\box{0.75}")

    endpoint.answer = answer
    settings = config(endpoint.url, {"concurrency": 2})
    judges = [start_judge(settings), start_judge(settings)]

    def valid(number: int) -> bool:
        (result,) = judges[number % 2].score(["q"], [f"a{number}"])
        return result.valid

    with ThreadPoolExecutor(24) as pool:
        assert list(pool.map(valid, range(24))) == [True] * 24
    assert endpoint.most_busy == 2
    assert endpoint.connections == 2


def test_thought_is_no_answer(endpoint: Endpoint) -> None:
    for fault in ("thought", "thought, open", "thought apart"):
        result = ask(endpoint, fault)
        assert (result.valid, result.score, result.path) == (False, 0.4, "default"), fault
        assert "0.1" in result.raw, "what it thought is there to read"
    assert ask(endpoint, "thought, then a score").score == 0.75


def test_the_log_probabilities_of_a_thought_do_not_count(endpoint: Endpoint) -> None:
    """A server that takes the thought out of the text, but not out of the tokens."""

    def token(text: str, **others: float) -> dict[str, Any]:
        top = [{"token": t, "logprob": p} for t, p in ({text: -0.1} | others).items()]
        return {"token": text, "logprob": -0.1, "top_logprobs": top}

    thought = [token(piece) for piece in ("\\box{", "0", ".", "1", "}", "</think>")]
    spoken = [token(piece) for piece in ("It", " is", " right")]
    message = completion("It is right", [*thought, *spoken], reasoning_content="\\box{0.1}")
    endpoint.answer = lambda _: (200, message)
    (result,) = judge(endpoint, score_mode="expected").score(["q"], ["a"])
    assert (result.valid, result.path) == (False, "default")
    tagged = completion(
        "<think>\\box{0.1}</think>It is right", [token("<think>"), *thought, *spoken]
    )
    endpoint.answer = lambda _: (200, tagged)
    (result,) = judge(endpoint, score_mode="expected").score(["q"], ["a"])
    assert (result.valid, result.path) == (False, "default")
    box = [
        *map(token, ("\\box{", "0", ".")),
        token("8", **{"1": -0.1}),
        *map(token, ("}", "<|im_end|>")),
    ]
    scored = completion("\\box{0.8}", [*thought, *box], reasoning_content="\\box{0.1}")
    endpoint.answer = lambda _: (200, scored)
    (result,) = judge(endpoint, score_mode="expected").score(["q"], ["a"])
    assert result.score == pytest.approx(0.45), "vLLM gives the end token, too"


@pytest.mark.parametrize("fault", ["thought apart", "thought, open", "thought"])
def test_a_trial_without_a_score_is_told(endpoint, fault, caplog) -> None:
    endpoint.fail(fault)
    with caplog.at_level(logging.WARNING):
        check_judge(config(endpoint.url))
    assert "has no score" in caplog.text
    assert "0.1" in caplog.text
    assert "enable_thinking=false" in caplog.text


@pytest.mark.parametrize(
    ("fault", "tokens"),
    [
        ("no usage", (0, 0)),
        ("usage of nulls", (0, 0)),
        ("usage in fractions", (11, 5)),
        ("usage in words", (0, 0)),
    ],
)
def test_statistics_are_optional(endpoint: Endpoint, fault: str, tokens: tuple[int, int]) -> None:
    result = ask(endpoint, fault)
    assert (result.score, result.path) == (0.75, "text")
    assert (result.prompt_tokens, result.new_tokens) == tokens


@pytest.mark.parametrize("fault", ["no alternatives", "NaN", "null for a number"])
def test_a_digit_without_a_log_probability_counts_as_written(endpoint, fault) -> None:
    """The first decimal was 3; that 9 has a log-probability and 3 has none means nothing."""
    assert ask(endpoint, fault, score_mode="expected").score == pytest.approx(0.37)


@pytest.mark.parametrize("server", TOO_LONG)
def test_every_server_may_say_that_a_prompt_is_too_long(endpoint: Endpoint, server: str) -> None:
    result = ask(endpoint, f"too long: {server}", {"max_retries": 3})
    assert (result.path, result.score) == ("overlength", 0.4)
    status, body = TOO_LONG[server]
    assert f"status {status}" in result.raw
    told = body.get("error", body) if isinstance(body, dict) else body
    assert (told["message"] if isinstance(told, dict) else told) in result.raw
    assert len(endpoint.bodies) == 1, "not retried"
    with pytest.raises(ScoringError, match=f"status {status}"):
        check_judge(config(endpoint.url))


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (429, "Rate limit reached on tokens per min: limit 10000, requested 700"),
        (503, "the model is loading its context"),
        (500, "the request took too long"),
        (500, "CUDA out of memory"),
        (400, "the model name is too long"),
        (400, "unknown field chat_template_kwargs"),
        (400, "max_tokens must be at least 1"),
        (400, "temperature exceeds the limit"),
        (401, "this key has no access to long prompts"),
        (422, "Input validation error: `temperature` must be strictly positive"),
    ],
)
def test_other_refusals_are_not_taken_for_it(status: int, words: str) -> None:
    assert not is_too_long(status, words)

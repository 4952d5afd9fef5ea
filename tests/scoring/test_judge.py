"""The judge over one engine call: order, guards, failures, figures."""

import numpy as np
import pytest
import torch

from refblend.errors import WorkerError
from refblend.rollout.base import Generation, OverlengthError
from refblend.scoring.generative import GenerativeJudge, engine_failures
from refblend.scoring.judge import judge_config
from refblend.scoring.result import score_metrics

CAP, NEW_TOKENS = 400, 32
LONG = "It is a warm day. " * 500


def judge(engine, tokenizer, invalid_score=0.5, **scoring) -> GenerativeJudge:
    usual = {"max_model_len": CAP, "max_new_tokens": NEW_TOKENS, "score_mode": "text"}
    config = judge_config("m", "hf", "embedded", usual | scoring, invalid_score)
    return GenerativeJudge(engine, tokenizer, config)


SAMPLES = [("q", "right"), ("q", "wrong"), ("q", "right"), ("p", "right"), ("q", "wrong")]


@pytest.mark.parametrize(("temperature", "requests"), [(0.0, 3), (0.7, 5)])
def test_equal_samples_are_asked_once_unless_the_judge_samples(
    temperature, requests, chat_tokenizer, scripted
) -> None:
    engine = scripted(
        chat_tokenizer, lambda p: "\\box{0.9}" if "[[right]]\n" in p else "\\box{0.1}"
    )
    j = judge(engine, chat_tokenizer, temperature=temperature)
    results = j.score(*zip(*SAMPLES, strict=True), seeds=range(5))
    assert [r.score for r in results] == [0.9, 0.1, 0.9, 0.9, 0.1]
    assert (j.last_call.samples, j.last_call.requests) == (5, requests)
    assert len(engine.calls[0]) == requests
    assert temperature == 0 or [r.seed for r in engine.calls[0]] == list(range(5))
    assert j.last_call.metrics()["perf/ref_quality/asked_share"] == requests / 5


def test_what_befalls_a_request_befalls_all_its_samples(chat_tokenizer, scripted) -> None:
    answering = scripted(chat_tokenizer, lambda p: "\\box{0.9}")
    j = judge(Failing(answering, [OverlengthError([1], 99)]), chat_tokenizer)
    results = j.score(*zip(*SAMPLES, strict=True))
    assert [r.path for r in results] == ["text", "overlength", "text", "text", "overlength"]


def test_clipping_never_hands_over_an_overlong_request(chat_tokenizer, scripted) -> None:
    engine = scripted(chat_tokenizer, lambda p: "\\box{0.9}", max_model_len=400)
    results = judge(engine, chat_tokenizer).score(["q", "q"], [LONG, "short"])
    assert [r.clipped for r in results] == [True, False]
    assert all(r.valid for r in results)
    assert max(len(r.prompt_ids) for r in engine.calls[0]) <= CAP - 16 - NEW_TOKENS
    assert results[0].prompt_tokens_unclipped > CAP - 16 - NEW_TOKENS


def test_without_clipping_an_overlong_sample_is_counted(chat_tokenizer, scripted) -> None:
    engine = scripted(chat_tokenizer, lambda p: "\\box{0.9}")
    j = judge(engine, chat_tokenizer, hard_clip=False, invalid_score=0.25)
    results = j.score(["q"] * 3, ["short", LONG, "brief"])
    assert [r.path for r in results] == ["text", "overlength", "text"]
    assert (results[1].score, results[1].valid) == (0.25, False)
    assert len(engine.calls[0]) == 2
    assert score_metrics(results)["incidents/overlength"] == 1


def test_all_overlong_makes_no_call(chat_tokenizer, scripted) -> None:
    engine = scripted(chat_tokenizer, lambda p: "\\box{0.9}")
    results = judge(engine, chat_tokenizer, hard_clip=False).score(["q"], [LONG])
    assert results[0].path == "overlength"
    assert engine.calls == []
    assert judge(engine, chat_tokenizer).score([], []) == []


class Failing:
    """Fails with each error in turn, then answers."""

    def __init__(self, inner, errors) -> None:
        self.inner, self.errors = inner, list(errors)
        self.max_model_len = 400
        self.weight_version = 0

    def generate(self, requests):
        if self.errors:
            raise self.errors.pop(0)
        return self.inner.generate(requests)


@pytest.mark.parametrize(
    "error",
    [
        TimeoutError("30 s"),
        RuntimeError("engine is dead"),
        WorkerError("judge died", "Look at its log."),
        ValueError("prompt too long"),
        ConnectionError("gone"),
    ],
    ids=lambda e: type(e).__name__,
)
def test_engine_failure_becomes_results(error, chat_tokenizer, scripted) -> None:
    engine = Failing(scripted(chat_tokenizer, lambda p: "\\box{0.9}"), [error])
    j = judge(engine, chat_tokenizer)
    results = j.score(["q"] * 2, ["a"] * 2)
    assert [(r.score, r.valid, r.path) for r in results] == [(0.5, False, "error")] * 2
    assert type(error).__name__ in results[0].raw
    assert [r.path for r in j.score(["q"], ["a"])] == ["text"]


def test_errors_of_loaded_libraries_are_engine_failures() -> None:
    from ray.exceptions import GetTimeoutError, RayActorError

    assert issubclass(RayActorError, engine_failures())
    assert issubclass(GetTimeoutError, engine_failures())
    assert not issubclass(TypeError, engine_failures())


class Garbage:
    """A judge whose weights are broken: any tokens, or none, and any log-probabilities."""

    max_model_len = 400

    def __init__(self, seed: int, vocabulary: int) -> None:
        self.rng, self.vocabulary = np.random.default_rng(seed), vocabulary

    def generate(self, requests):
        answers = []
        for request in requests:
            size = int(self.rng.integers(0, request.max_new_tokens + 1))
            ids = self.rng.integers(0, self.vocabulary, size).tolist()
            likely = self.rng.choice([float("nan"), float("-inf"), -1.0, 0.0], (size, 3)).tolist()
            top = [{i: a, 5: b, 9: c} for i, (a, b, c) in zip(ids, likely, strict=True)]
            answers.append(Generation(ids, [float("nan")] * size, "length", 0, top))
        return answers


@pytest.mark.parametrize("mode", ["text", "expected"])
@pytest.mark.parametrize("seed", range(5))
def test_garbage_is_counted_and_never_a_silent_zero(mode, seed, chat_tokenizer) -> None:
    engine = Garbage(seed, len(chat_tokenizer))
    j = judge(engine, chat_tokenizer, score_mode=mode)
    results = j.score(["q"] * 8, list("abcdefgh"))
    assert all(0.0 <= r.score <= 1.0 for r in results)
    assert all(r.score == 0.5 for r in results if not r.valid)
    metrics = score_metrics(results)
    assert metrics["incidents/judge_invalid"] == sum(not r.valid for r in results) > 0


@pytest.mark.parametrize("error", [MemoryError(), torch.OutOfMemoryError("CUDA out of memory")])
def test_out_of_memory_is_for_whoever_started_the_engine(error, chat_tokenizer) -> None:
    """Training replaces the engine and repeats the call: a neutral score would change the run."""
    with pytest.raises(type(error)):
        judge(Failing(None, [error]), chat_tokenizer).score(["q"], ["a"])


def test_a_defect_is_not_hidden(chat_tokenizer) -> None:
    with pytest.raises(ZeroDivisionError):
        judge(Failing(None, [ZeroDivisionError()]), chat_tokenizer).score(["q"], ["a"])


def test_an_engine_that_loses_an_answer_is_an_error(chat_tokenizer, scripted) -> None:
    engine = scripted(chat_tokenizer, lambda p: "\\box{0.9}")
    whole = engine.generate
    engine.generate = lambda requests: whole(requests)[:-1]
    results = judge(engine, chat_tokenizer).score(["q"] * 2, ["a", "b"])
    assert [r.path for r in results] == ["error", "error"]


def test_truncated_box_is_read_by_the_token_parser(chat_tokenizer, scripted) -> None:
    engine = scripted(chat_tokenizer, lambda p: "1" * 25 + "\\box{0.37}")
    ids = chat_tokenizer("1" * 25 + "\\box{0.37", add_special_tokens=False)["input_ids"]
    (result,) = judge(engine, chat_tokenizer, max_new_tokens=len(ids)).score(["q"], ["a"])
    assert (result.score, result.path) == (0.37, "token")


SCORING = "algorithm.ref_quality_score.scoring"


def test_the_fallback_counts_only_where_the_user_set_no_length(tiny_config) -> None:
    """The tiny model and its tokenizer have 1024 positions."""

    def longest_of(*overrides: str) -> int:
        config = tiny_config(*overrides).algorithm.ref_quality_score
        (request,) = GenerativeJudge.trial(config, [("1 + 1 = ?", "1+1=2\n" * 4000)])
        assert request.clipped
        return len(request.token_ids)

    fallback = f"{SCORING}.fallback_max_length={{}}"
    unset = f"{SCORING}.max_model_len=null"
    assert longest_of(unset) == 768 - 32
    assert longest_of(unset, fallback.format(700)) == 700 - 32
    assert longest_of(unset, fallback.format(4000)) == 1024 - 32
    assert longest_of(f"{SCORING}.max_model_len=1000", fallback.format(700)) == 1000 - 32

"""A judge behind HTTP, asked over real sockets: an endpoint on loopback that behaves as told."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from fault_server import MODEL, TOKENS, Endpoint, completion, config, judge, with_logprobs

from refblend.config.algorithm import RefQualityScoreConfig
from refblend.errors import ConfigError, ScoringError
from refblend.scoring.generative import guided_regex
from refblend.scoring.judge import check_judge, start_judge
from refblend.scoring.parsing import expected_score
from refblend.scoring.prompts import scoring_prompt
from refblend.scoring.result import score_metrics
from refblend.trainer.preflight import inputs_of, preflight
from refblend.workers.roles import JUDGE


def content(body: dict[str, Any]) -> str:
    (message,) = body["messages"]
    assert message["role"] == "user"
    return message["content"]


def test_scores_come_back_in_order(endpoint: Endpoint, embedded: Any) -> None:
    def answer(body: dict[str, Any]) -> tuple[int, Any]:
        time.sleep(0.05 if "[[slow]]" in content(body).split("===")[-1] else 0)
        text = content(body).split("===")[-1]
        return 200, completion("\\box{0.9}" if "[[right]]" in text else "\\box{0.1}")

    endpoint.answer = answer
    j = judge(endpoint)
    results = j.score(["q"] * 4, ["slow", "right", "wrong", "right"])
    assert [r.score for r in results] == [0.1, 0.9, 0.1, 0.9]
    assert all(r.valid and r.path == "text" and r.template == "full" for r in results)
    assert (results[0].prompt_tokens, results[0].new_tokens) == (11, 5)
    assert len(endpoint.bodies) == 3, "equal samples are asked once"
    assert (j.last_call.samples, j.last_call.requests) == (4, 3)
    assert (j.last_call.prompt_tokens, j.last_call.new_tokens) == (33, 15)
    sent = {content(body) for body in endpoint.bodies}
    assert sent == {
        scoring_prompt("q", response, embedded) for response in ("slow", "right", "wrong")
    }
    body = endpoint.bodies[0]
    assert (body["model"], body["temperature"], body["max_tokens"]) == (MODEL, 0.0, 64)
    assert body["chat_template_kwargs"] == {"enable_thinking": False}
    assert "logprobs" not in body
    assert "seed" not in body


def test_it_answers_in_a_notebook_which_runs_a_loop_itself(endpoint: Endpoint) -> None:
    j = judge(endpoint)

    async def cell() -> list[float]:
        return [result.score for result in j.score(["q"], ["a"])]

    assert asyncio.run(cell()) == [0.75]


def test_a_sampling_judge_is_asked_for_every_sample(endpoint: Endpoint) -> None:
    j = judge(endpoint, {"enable_thinking": None}, temperature=0.7)
    j.score(["q"] * 3, ["a"] * 3, seeds=[1, 2, 3])
    assert sorted(body["seed"] for body in endpoint.bodies) == [1, 2, 3]
    assert "chat_template_kwargs" not in endpoint.bodies[0]


def test_expected_scores_from_log_probabilities(endpoint: Endpoint) -> None:
    """Half 3, half 5 at the first decimal: 0.4 and the 0.07 as written."""
    half = {"3": -0.6931471805599453, "5": -0.6931471805599453}
    endpoint.answer = lambda body: (200, completion("\\box{0.37}", with_logprobs(half)))
    (result,) = judge(endpoint, score_mode="expected").score(["q"], ["a"])
    assert result.score == pytest.approx(0.47)
    assert (result.valid, result.path) == (True, "text")
    body = endpoint.bodies[0]
    assert (body["logprobs"], body["top_logprobs"]) == (True, 20)
    # The same by the function that the engines' tokens go through.
    ids = {token: number for number, token in enumerate([*TOKENS, "5"])}
    tops = [{ids[t]: 0.0} for t in TOKENS]
    tops[3] = {ids[t]: p for t, p in half.items()}
    assert result.score == expected_score(TOKENS, tops, [*TOKENS, "5"].__getitem__, 0.37)


def test_a_box_that_the_limit_cut_off_is_read_from_the_tokens(endpoint: Endpoint) -> None:
    tokens = with_logprobs({"3": 0.0})[:4]
    endpoint.answer = lambda body: (200, completion("\\box{0.3", tokens))
    (result,) = judge(endpoint, score_mode="expected").score(["q"], ["a"])
    assert (result.score, result.path) == (pytest.approx(0.3), "token")


def test_expected_mode_is_refused_without_log_probabilities(endpoint: Endpoint) -> None:
    settings = config(endpoint.url, score_mode="expected")
    with pytest.raises(ScoringError, match=r"no log-probabilities.*score_mode=text"):
        check_judge(settings)
    (result,) = start_judge(settings).score(["q"], ["a"])
    assert (result.score, result.valid, result.path) == (0.4, False, "error")


@pytest.mark.parametrize("status", [500, 503, 429, 408])
def test_a_passing_failure_is_retried(endpoint: Endpoint, status: int) -> None:
    endpoint.answer = lambda body: (
        (200, completion("\\box{0.75}"))
        if len(endpoint.bodies) > 1
        else (status, {"error": {"message": "later"}})
    )
    (result,) = judge(endpoint).score(["q"], ["a"])
    assert (result.score, result.path) == (0.75, "text")
    assert len(endpoint.bodies) == 2


def test_a_lasting_failure_is_a_result_and_the_others_are_scored(endpoint: Endpoint) -> None:
    endpoint.answer = lambda body: (
        (500, {"error": {"message": "out of order"}})
        if "[[bad]]" in content(body)
        else (200, completion("\\box{0.75}"))
    )
    results = judge(endpoint).score(["q"] * 2, ["bad", "good"])
    assert [(r.score, r.path) for r in results] == [(0.4, "error"), (0.75, "text")]
    assert "status 500" in results[0].raw
    assert "out of order" in results[0].raw
    assert score_metrics(results)["incidents/judge_error"] == 1
    assert len(endpoint.bodies) == 3


def test_of_an_endpoint_that_hangs_one_round_is_asked(endpoint: Endpoint) -> None:
    def answer(body: dict[str, Any]) -> tuple[int, Any]:
        time.sleep(0.0 if "fine" in content(body) else 1.5)
        return 200, completion("\\box{0.75}")

    endpoint.answer = answer
    j = judge(endpoint, {"timeout_s": 0.5, "max_retries": 0, "concurrency": 2})
    results = j.score(["q"] * 9, [f"a{i}" for i in range(9)])
    assert all(r.path == "error" and "in time" in r.raw for r in results)
    assert len(endpoint.bodies) == 2
    # The next batch is asked again, and one that hangs among others costs only its own score.
    responses = ["fine 1", "a", "fine 2", "fine 3", "fine 4"]
    results = j.score(["q"] * 5, responses)
    assert [r.valid for r in results] == ["fine" in text for text in responses]


@pytest.mark.parametrize(
    "body",
    [
        *(b"{not json", b"", b'"text"', b"[]", b"null", b"{}", b'{"choices": []}'),
        b'{"choices": 7}',
        b'{"choices": [{"message": {"content": 7}}]}',
    ],
)
@pytest.mark.parametrize("mode", ["text", "expected"])
def test_malformed_answers_are_results(endpoint: Endpoint, body: bytes, mode: str) -> None:
    endpoint.answer = lambda _: (200, body)
    j = judge(endpoint, {"max_retries": 0}, score_mode=mode)
    (result,) = j.score(["q"], ["a"])
    assert (result.score, result.valid, result.path) == (0.4, False, "error")
    assert "unreadable answer" in result.raw
    assert "\n" not in result.raw


def test_no_connection(endpoint: Endpoint) -> None:
    url = endpoint.url
    endpoint.shutdown()
    endpoint.server_close()
    settings = config(url, {"max_retries": 0})
    with pytest.raises(ScoringError, match=r"no connection to .*vllm serve.*base_url"):
        check_judge(settings)
    results = start_judge(settings).score(["q"] * 2, ["a", "b"])
    assert [r.path for r in results] == ["error"] * 2
    assert "no connection" in results[0].raw


def test_prompts_are_clipped_by_characters(endpoint: Endpoint, embedded: Any) -> None:
    """Full, then compact, then the middle of the response, as with tokens."""
    full = len(scoring_prompt("q", "a", embedded))
    j = judge(endpoint, {"max_prompt_chars": full})
    results = j.score(["q"] * 3, ["a", "ab", "FIRST " + "x" * 999 + " #### 41"])
    assert [r.template for r in results] == ["full", "compact", "compact"]
    assert [r.clipped for r in results] == [False, False, True]
    sent = [content(body) for body in endpoint.bodies]
    assert max(map(len, sent)) == full
    longest = next(text for text in sent if "xxx" in text)
    assert "[[FIRST " in longest
    assert " #### 41]]" in longest
    assert longest.endswith("End with one \\box{x}.")
    open_end = judge(endpoint, {"max_prompt_chars": full}, hard_clip=False)
    assert open_end.score(["q"], ["x" * 999])[0].path == "overlength"


def test_check_asks_for_a_trial(endpoint: Endpoint) -> None:
    check_judge(config(endpoint.url))
    assert len(endpoint.bodies) == 1
    endpoint.answer = lambda _: (404, {"error": {"message": "model not found"}})
    with pytest.raises(ScoringError, match=r"status 404 .*model not found.*http: base_url, model"):
        check_judge(config(endpoint.url))


def test_guided_answers_are_asked_for_and_checked(endpoint: Endpoint) -> None:
    check_judge(config(endpoint.url, decoding="guided"))
    assert endpoint.bodies[0]["structured_outputs"] == {"regex": guided_regex(64)}
    assert endpoint.bodies[0]["chat_template_kwargs"] == {"enable_thinking": False}
    endpoint.answer = lambda _: (200, completion("I give it \\box{0.7}, surely."))
    with pytest.raises(ScoringError, match=r"does not guide its answers.*decoding=free"):
        check_judge(config(endpoint.url, decoding="guided"))
    check_judge(config(endpoint.url, decoding="free"))
    assert "structured_outputs" not in endpoint.bodies[-1]


def test_the_key_comes_from_the_environment(endpoint, monkeypatch) -> None:
    settings = config(endpoint.url, {"bearer_env": "MY_JUDGE_KEY"})
    with pytest.raises(ConfigError, match="MY_JUDGE_KEY, which is not set"):
        check_judge(settings)
    monkeypatch.setenv("MY_JUDGE_KEY", "secret-0123")
    start_judge(settings).score(["q"], ["a"])
    assert endpoint.keys == {"Bearer secret-0123"}
    assert "secret" not in settings.model_dump_json()
    endpoint.answer = lambda _: (401, {"error": {"message": "bad key"}})
    with pytest.raises(ScoringError, match=r"status 401 .*bad key.*MY_JUDGE_KEY") as caught:
        check_judge(settings)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("scoring", "words"),
    [
        ({"kind": "http"}, r"http\.base_url is needed by kind=http"),
        ({"kind": "http", "num_gpus": 0.2}, "num_gpus=0.2, but with kind=http .*: set num_gpus=0"),
        (
            {"kind": "http", "num_engines": 2, "http": {"base_url": "http://a/v1", "model": "m"}},
            "num_engines=2, but with kind=http",
        ),
        ({"kind": "http", "http": {"base_url": "http://a/v1"}}, r"http\.model is needed"),
        ({"kind": "http", "http": {"base_url": "localhost:8000", "model": "m"}}, "web address"),
        ({"kind": "http", "http": {"base_url": "http://u:p@a/v1", "model": "m"}}, "password"),
        ({"model_path": "m", "http": {"base_url": "http://a/v1"}}, "kind is vllm"),
        ({"model_path": "m", "kind": "sglang"}, "use one of 'vllm', 'hf'"),
        ({"model_path": "m", "http": {"url": "x"}}, "Extra inputs"),
        ({"kind": "reward_model"}, "model_path is needed"),
        ({"model_path": "m", "decoding": "guided", "max_new_tokens": 9}, "is 9.*takes up to 10"),
        ({"model_path": "m", "decoding": "guided", "kind": "reward_model"}, "no text to guide"),
    ],
)
def test_configurations_that_do_not_fit(scoring: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        RefQualityScoreConfig.model_validate({"scoring": scoring})


def test_training_needs_no_model_of_a_judge_behind_http(endpoint, tiny_config) -> None:
    """Preflight asks the endpoint; neither memory nor the run's identity counts a model."""
    scoring = {
        "kind": "http",
        "model_path": None,
        "score_mode": "text",
        "http": {"base_url": endpoint.url, "model": MODEL, "max_retries": 0},
    }
    tree = {"algorithm": {"ref_quality_score": {"scoring": scoring}}}
    settings, local = tiny_config(tree), tiny_config()
    preflight(settings)
    assert len(endpoint.bodies) == 1
    assert JUDGE.memory(settings) < JUDGE.memory(local)
    files, models = inputs_of(settings)
    assert models == [Path(settings.actor_rollout_ref.model.path)]
    assert files == inputs_of(local)[0]
    endpoint.answer = lambda _: (503, {"error": {"message": "starting"}})
    with pytest.raises(ScoringError, match="status 503"):
        preflight(settings)

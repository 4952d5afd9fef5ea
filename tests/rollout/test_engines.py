"""Both engines against the interface and against transformers."""

import dataclasses

import pytest
import torch

from refblend.rollout.base import OverlengthError

BOTH = pytest.mark.parametrize(
    "engine", ["hf", pytest.param("vllm", marks=pytest.mark.engine)], indirect=True
)


def tokens_of(generations) -> list[list[int]]:
    return [g.token_ids for g in generations]


@BOTH
def test_same_seed_gives_the_same_sample_in_any_order_and_batch_size(engine, requests_of):
    requests = requests_of(48)
    first = tokens_of(engine.generate(requests))
    assert tokens_of(engine.generate(requests)) == first
    backwards = tokens_of(engine.generate(requests[::-1]))
    assert backwards[::-1] == first
    in_parts = [t for i in range(0, 48, 7) for t in tokens_of(engine.generate(requests[i : i + 7]))]
    assert in_parts == first
    other_seeds = [dataclasses.replace(r, seed=r.seed + 500) for r in requests]
    different = sum(
        a != b for a, b in zip(tokens_of(engine.generate(other_seeds)), first, strict=True)
    )
    assert different >= 46


@BOTH
def test_one_prompt_many_seeds_follow_the_distribution(engine, model, requests_of):
    """4000 first tokens against their probabilities: chi-square over the likely tokens."""
    request = requests_of(1, new=1)[0]
    many = [dataclasses.replace(request, seed=s) for s in range(4000)]
    counts = torch.zeros(model.config.vocab_size)
    for generation in engine.generate(many):
        counts[generation.token_ids[0]] += 1
    with torch.no_grad():
        p = model(torch.tensor([request.prompt_ids])).logits[0, -1].softmax(-1)
    likely = p * 4000 >= 10
    observed = torch.cat([counts[likely], counts[~likely].sum()[None]])
    expected = torch.cat([p[likely], p[~likely].sum()[None]]) * 4000
    statistic = float(((observed - expected) ** 2 / expected).sum())
    degrees = len(observed) - 1
    # Mean + 5 standard deviations of the chi-square distribution.
    assert statistic < degrees + 5 * (2 * degrees) ** 0.5


@BOTH
@pytest.mark.parametrize("temperature", [1.0, 0.7, 0.0])
def test_log_probs_are_those_of_transformers(engine, model, requests_of, gap, temperature):
    requests = requests_of(24, temperature)
    generations = engine.generate(requests)
    assert gap(model, requests, generations) < 1e-4
    assert all(len(g.log_probs) == len(g.token_ids) for g in generations)


@BOTH
def test_mixed_temperatures_and_lengths_in_one_call(engine, model, requests_of, gap):
    requests = [
        dataclasses.replace(r, temperature=(0.0, 0.7, 1.0)[i % 3], max_new_tokens=1 + i % 5)
        for i, r in enumerate(requests_of(18))
    ]
    generations = engine.generate(requests)
    assert gap(model, requests, generations) < 1e-4
    for request, generation in zip(requests, generations, strict=True):
        if generation.finish_reason == "length":
            assert len(generation.token_ids) == request.max_new_tokens


@BOTH
def test_top_log_probs_hold_the_sampled_token_and_the_most_probable(engine, model, requests_of):
    requests = requests_of(6, top_logprobs=5)
    for request, generation in zip(requests, engine.generate(requests), strict=True):
        with torch.no_grad():
            ids = torch.tensor([[*request.prompt_ids, *generation.token_ids]])
            log_p = model(ids).logits[0].log_softmax(-1)
        assert len(generation.top_logprobs) == len(generation.token_ids)
        for t, (token, found) in enumerate(
            zip(generation.token_ids, generation.top_logprobs, strict=True)
        ):
            row = log_p[len(request.prompt_ids) - 1 + t]
            values, best = row.topk(5)
            assert set(found) == {token, *best.tolist()}
            assert found[token] == pytest.approx(generation.log_probs[t], abs=1e-6)
            ours = [found[int(b)] for b in best]
            assert ours == pytest.approx(values.tolist(), abs=1e-4)
    assert engine.generate(requests_of(1))[0].top_logprobs is None


@BOTH
@pytest.mark.parametrize("temperature", [1.0, 0.0])
def test_log_probs_that_nobody_asks_for_change_no_sample(engine, requests_of, temperature):
    requests = requests_of(12, temperature)
    without = engine.generate([dataclasses.replace(r, log_probs=False) for r in requests])
    assert tokens_of(without) == tokens_of(engine.generate(requests))
    assert all(g.log_probs == [] and g.top_logprobs is None for g in without)
    mixed = [dataclasses.replace(r, log_probs=i % 2 == 0) for i, r in enumerate(requests)]
    answers = engine.generate(mixed)
    assert tokens_of(answers) == tokens_of(without)
    assert [bool(g.log_probs) for g in answers] == [r.log_probs for r in mixed]


@BOTH
def test_overlength_prompts_are_named_and_the_engine_survives(engine, requests_of):
    requests = requests_of(4)
    limit = engine.max_model_len
    long = [5] * limit
    bad = [
        requests[0],
        dataclasses.replace(requests[1], prompt_ids=long),
        requests[2],
        dataclasses.replace(requests[3], prompt_ids=[*long, 7, 7]),
    ]
    before = tokens_of(engine.generate(requests))
    with pytest.raises(OverlengthError) as caught:
        engine.generate(bad)
    assert caught.value.indices == [1, 3]
    assert caught.value.limit == limit
    assert tokens_of(engine.generate(requests)) == before


@BOTH
def test_answers_are_shortened_to_the_room_that_is_left(engine, requests_of):
    limit = engine.max_model_len
    request = dataclasses.replace(requests_of(1)[0], prompt_ids=[5] * (limit - 3))
    last = dataclasses.replace(request, prompt_ids=[5] * (limit - 1))
    answers = engine.generate([request, last])
    for answer, room in zip(answers, (3, 1), strict=True):
        assert len(answer.token_ids) == room or answer.finish_reason == "stop"
        assert len(answer.token_ids) <= room


@BOTH
def test_no_requests_no_answers(engine):
    assert engine.generate([]) == []


@BOTH
def test_an_answer_may_be_forced_to_its_full_length(engine, model, requests_of):
    wanted = requests_of(64, new=60)
    assert any(a.finish_reason == "stop" for a in engine.generate(wanted))
    forced = [dataclasses.replace(r, ignore_eos=True) for r in wanted]
    answers = engine.generate(forced)
    assert [len(a.token_ids) for a in answers] == [r.max_new_tokens for r in forced]
    assert {a.finish_reason for a in answers} == {"length"}

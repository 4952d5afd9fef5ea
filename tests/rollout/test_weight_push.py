"""After a weight push nothing of the old weights is left; answers end at every stop token."""

import dataclasses

import pytest
import torch
from transformers import AutoModelForCausalLM

import refblend.rollout.vllm_engine as vllm_engine_module
from refblend.errors import ModelError
from refblend.rollout.base import EngineOptions
from refblend.rollout.factory import start_engine
from refblend.workers.weight_buffer import MappedWeights, WeightBuffer

BOTH = pytest.mark.parametrize(
    "engine", ["hf", pytest.param("vllm", marks=pytest.mark.engine)], indirect=True
)
STOP = [2, *range(20, 60)]
"""The tokenizer's end token and others, so many that a random model meets them soon."""


def load(path):
    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)


@pytest.fixture(scope="module")
def new_model(make_tiny_model):
    return load(make_tiny_model(1))


def weights_of(model) -> dict[str, torch.Tensor]:
    """As the actor sends them: without the tied head."""
    return {k: v for k, v in model.state_dict().items() if k != "lm_head.weight"}


@BOTH
def test_every_stop_token_ends_an_answer(engine, requests_of, monkeypatch):
    monkeypatch.setattr(engine, "_stop_ids", STOP)
    generations = engine.generate(requests_of(64))
    stopped = [g for g in generations if g.finish_reason == "stop"]
    assert 20 < len(stopped) < 64
    assert all(g.token_ids[-1] in STOP for g in stopped)
    assert len({g.token_ids[-1] for g in stopped}) > 10
    for g in generations:
        inner = g.token_ids[:-1] if g.finish_reason == "stop" else g.token_ids
        assert not set(inner) & set(STOP)
        assert g.finish_reason == "stop" or len(g.token_ids) == 12


@BOTH
def test_log_probs_are_those_of_the_pushed_weights(engine, model, new_model, requests_of, gap):
    requests = requests_of(24)
    engine.load_weights(weights_of(new_model), 5)
    pushed = engine.generate(requests)
    assert {g.weight_version for g in pushed} == {5}
    assert gap(new_model, requests, pushed) < 1e-4
    assert gap(model, requests, pushed) > 1.0
    engine.load_weights(weights_of(model), 0)
    back = engine.generate(requests)
    assert {g.weight_version for g in back} == {0}
    assert gap(model, requests, back) < 1e-4


@BOTH
def test_a_cached_prompt_is_answered_by_the_new_weights(engine, model, new_model, requests_of):
    """Greedy answers before and after a push, to a prompt that spans several cache blocks."""
    long = [dataclasses.replace(r, prompt_ids=list(r.prompt_ids) * 16) for r in requests_of(6, 0.0)]

    def greedy(oracle, request) -> list[int]:
        ids = list(request.prompt_ids)
        while True:
            with torch.no_grad():
                ids.append(int(oracle(torch.tensor([ids])).logits[0, -1].argmax()))
            made = ids[len(request.prompt_ids) :]
            if len(made) == request.max_new_tokens or made[-1] == STOP[0]:
                return made

    before = [g.token_ids for g in engine.generate(long)]
    assert before == [greedy(model, r) for r in long]
    engine.load_weights(weights_of(new_model), 7)
    after = [g.token_ids for g in engine.generate(long)]
    assert after == [greedy(new_model, r) for r in long]
    assert after != before
    engine.load_weights(weights_of(model), 0)
    assert [g.token_ids for g in engine.generate(long)] == before


def test_foreign_weights_are_refused(hf_engine, model):
    with pytest.raises(ModelError, match="same model directory"):
        hf_engine.load_weights({"model.nothing": torch.zeros(1)}, 9)
    weights = weights_of(model)
    weights.pop("model.norm.weight")
    with pytest.raises(ModelError, match=r"model\.norm\.weight"):
        hf_engine.load_weights(weights, 9)


def test_untied_head_must_be_pushed_too(make_tiny_model, requests_of, gap):
    path = make_tiny_model(2, tie_word_embeddings=False)
    other = load(make_tiny_model(3, tie_word_embeddings=False))
    engine = start_engine("hf", EngineOptions(str(path)))
    with pytest.raises(ModelError, match=r"lm_head\.weight"):
        engine.load_weights(weights_of(other), 1)
    engine.load_weights(other.state_dict(), 1)
    requests = requests_of(8)
    assert gap(other, requests, engine.generate(requests)) < 1e-4


def computed_with(model) -> dict[str, torch.Tensor]:
    """All weights as the layers compute with them: a packed one gives itself for unit vectors."""
    found = {}
    for path, module in model.named_modules():
        for key, parameter in module.named_parameters(recurse=False):
            found[f"{path}.{key}"] = parameter.clone()
        head = module is model.lm_head
        width = getattr(module, "input_size_per_partition", 0)
        if width and (head or not hasattr(module, "embedding_dim")):
            unit = torch.eye(width, dtype=module.weight.dtype)
            found[path] = module.cpu_linear(unit, module.weight, None).clone()
    return found


@pytest.mark.engine
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_weights_in_place_are_those_of_vllms_reload_to_the_bit(
    dtype, vllm_engine, tiny_model_dir, model, new_model, monkeypatch
):
    engine = vllm_engine
    if dtype != "float32":
        options = EngineOptions(str(tiny_model_dir), 128, dtype=dtype, kv_cache_memory_mb=16)
        engine = start_engine("vllm", options)
    worker = engine._llm.llm_engine

    def pushed(weights, version) -> dict[str, torch.Tensor]:
        engine.load_weights(weights, version)
        return worker.apply_model(computed_with)[0]

    buffer, mapped = WeightBuffer(), MappedWeights()
    packed = buffer.pack(weights_of(new_model), getattr(torch, dtype))
    in_place = pushed(mapped.tensors(packed, None), 1)
    # The next push overwrites the buffer; the engine must not read from it any more.
    buffer.pack({k: torch.zeros_like(v) for k, v in weights_of(model).items()}, packed.dtype)
    assert not differing(worker.apply_model(computed_with)[0], in_place)
    separate = {name: tensor.clone() for name, tensor in weights_of(new_model).items()}
    assert not differing(pushed(separate, 2), in_place)
    calls = []
    monkeypatch.setattr(vllm_engine_module, "load_in_place", lambda *_: calls.append(1))
    old = pushed(weights_of(model), 3)
    assert len(differing(old, in_place)) > 10
    assert not differing(pushed(weights_of(new_model), 4), in_place)
    pushed(weights_of(model), 0)
    assert calls == [1, 1, 1]
    if engine is not vllm_engine:
        engine.shutdown()


def differing(one, other) -> list[str]:
    """Names of the weights that are not equal to the bit."""
    assert one.keys() == other.keys()
    assert sum("." in name and not name.endswith(("weight", "bias")) for name in one) == 8
    return [name for name, tensor in one.items() if not torch.equal(tensor, other[name])]

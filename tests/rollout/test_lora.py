"""Judges on vLLM: on the base of an engine with an adapter, and on an engine of their own."""

from dataclasses import replace

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from refblend.config.algorithm import RefQualityScoreConfig
from refblend.rollout.base import EngineOptions
from refblend.rollout.factory import start_engine
from refblend.rollout.vllm_engine import LORA_RANKS, engine_arguments
from refblend.scoring.generative import GenerativeJudge
from refblend.workers.lora import adapter_of

QUESTIONS = ["Eva finds 12 pens. Then 5 get lost. How many are left?", "What is 3 + 4?"]


def test_room_for_every_rank():
    options = [EngineOptions("m", lora_rank=rank) for rank in (0, 1, 8, 9, 64, 512)]
    rooms = [engine_arguments(each, on_gpu=False)["max_lora_rank"] for each in options]
    assert rooms == [8, 8, 8, 16, 64, 512]
    from vllm.config.lora import MaxLoRARanks

    assert set(LORA_RANKS) <= set(MaxLoRARanks.__args__)


@pytest.fixture(scope="module")
def engine(tiny_model_dir):
    options = EngineOptions(str(tiny_model_dir), kv_cache_memory_mb=64, lora_rank=3, lora_alpha=6.0)
    engine = start_engine("vllm", options)
    yield engine
    engine.shutdown()


def adapted(directory, seed: int):
    """The model with a random adapter, and that adapter as the actor sends it."""
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    model = get_peft_model(model, LoraConfig(r=3, lora_alpha=6, target_modules="all-linear"))
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if "lora_B" in name:
                tensor.normal_(std=0.05)
    return model.eval(), adapter_of(model.base_model.model.state_dict())


@pytest.mark.engine
def test_adapter_and_base_on_one_engine(
    engine, vllm_engine, tiny_model_dir, model, requests_of, gap
):
    """Log-probs are the trainer's, and the base stays the base after two adapters."""
    requests, base = requests_of(12), engine.base()
    alone = vllm_engine.generate(requests)
    assert base.generate(requests) == alone
    for version in (1, 2):
        trained, tensors = adapted(tiny_model_dir, version)
        engine.load_weights(tensors, version)
        found = engine.generate(requests)
        assert {g.weight_version for g in found} == {version}
        assert gap(trained, requests, found) < 1e-4
        assert gap(model, requests, found) > 1e-2
        assert base.generate(requests) == alone


@pytest.mark.engine
def test_a_batch_of_both_kinds_would_give_the_base_the_adapter(
    engine, tiny_model_dir, model, requests_of, gap, monkeypatch
):
    """Why ``generate`` never mixes them. Should this fail, vLLM's CPU build has mended it."""
    trained, tensors = adapted(tiny_model_dir, 4)
    engine.load_weights(tensors, 4)
    generate = engine._llm.generate

    def mix(prompts, *args, lora_request, **more):
        loras = [lora_request if row % 2 else None for row in range(len(prompts))]
        return generate(prompts, *args, lora_request=loras, **more)

    monkeypatch.setattr(engine._llm, "generate", mix)
    requests = requests_of(12)
    found = engine.generate(requests)
    assert gap(trained, requests, found) < 1e-4
    assert gap(model, requests[::2], found[::2]) > 1e-2


@pytest.mark.engine
def test_scores_equal_those_of_an_engine_of_the_judges_own(engine, vllm_engine, tiny_model_dir):
    engine.load_weights(adapted(tiny_model_dir, 3)[1], 3)
    config = RefQualityScoreConfig.model_validate(
        {
            "enable": True,
            "scoring": {"kind": "reference", "model_path": str(tiny_model_dir), "few_shot": False},
        }
    )
    columns = QUESTIONS * 3, [f"{n}. #### {n}" for n in range(6)], range(6)
    shared, own = (
        [replace(r, latency_s=0.0) for r in GenerativeJudge.on_engine(config, e).score(*columns)]
        for e in (engine.base(), vllm_engine)
    )
    assert shared == own
    by_adapter = GenerativeJudge.on_engine(config, engine).score(*columns)
    assert [result.raw for result in by_adapter] != [result.raw for result in own]

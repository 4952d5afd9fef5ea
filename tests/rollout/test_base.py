"""Checks that every engine makes before any work starts."""

import json
import pickle
from unittest.mock import Mock

import pytest

from refblend.errors import ConfigError, ModelError, ResourceError
from refblend.rollout import factory
from refblend.rollout.base import EngineOptions, GenerationRequest, OverlengthError, check_lengths
from refblend.rollout.factory import start_engine
from refblend.rollout.model_dir import check_model_dir, resolve_max_model_len
from refblend.rollout.vllm_engine import VllmEngine, check_engine_kwargs, engine_arguments
from refblend.scoring import generative
from refblend.seeding import derive_seed


def test_model_dir_errors_name_the_key_and_what_is_missing(tmp_path):
    key = "actor_rollout_ref.model.path"
    with pytest.raises(ModelError, match=f"{key}: .*nowhere is not a directory"):
        check_model_dir(str(tmp_path / "nowhere"), key)
    with pytest.raises(ModelError, match=f"{key}: .*no config.json"):
        check_model_dir(str(tmp_path), key)
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "pytorch_model.bin").write_text("")
    with pytest.raises(ModelError, match=f"{key}: .*holds no weights"):
        check_model_dir(str(tmp_path), key)
    (tmp_path / "model.safetensors").write_text("")
    assert check_model_dir(str(tmp_path), key) == tmp_path


@pytest.mark.parametrize("name", ["hf", "vllm"])
def test_engines_refuse_more_positions_than_the_model_has(name, tiny_model_dir):
    with pytest.raises(ModelError, match=r"max_model_len=4096 .* 1024 positions"):
        start_engine(name, EngineOptions(str(tiny_model_dir), max_model_len=4096))


@pytest.mark.parametrize("seed", [0, 7, None])
def test_an_engine_s_seed_is_the_one_given_or_derived(tiny_config, monkeypatch, seed):
    monkeypatch.setattr(factory, "start_engine", lambda name, options: options.seed)
    given = "null" if seed is None else seed
    config = tiny_config(f"actor_rollout_ref.rollout.seed={given}", "trainer.seed=3")
    expected = derive_seed(3, "rollout engine") if seed is None else seed
    assert factory.start_rollout(config, "x") == expected


def test_lengths_are_counted_before_work_starts():
    def request(prompt: int, new: int) -> GenerationRequest:
        return GenerationRequest([1] * prompt, new)

    check_lengths([request(9, 50)], 10)
    with pytest.raises(OverlengthError) as caught:
        check_lengths([request(10, 1), request(9, 1), request(11, 1)], 10)
    assert caught.value.indices == [0, 2]


def test_overlength_error_survives_ray():
    error = pickle.loads(pickle.dumps(OverlengthError([3, 5], 100)))
    assert (error.indices, error.limit) == ([3, 5], 100)
    assert "2 prompts" in str(error)


def test_model_length(tmp_path):
    def write(**values) -> None:
        (tmp_path / "config.json").write_text(json.dumps(values))

    write(max_position_embeddings=64)
    assert resolve_max_model_len(tmp_path, None) == 64
    assert resolve_max_model_len(tmp_path, 32) == 32
    with pytest.raises(ModelError, match="Set it to 64 or less"):
        resolve_max_model_len(tmp_path, 65)
    write(max_position_embeddings=64, rope_scaling={"rope_type": "yarn", "factor": 4.0})
    assert resolve_max_model_len(tmp_path, 256) == 256
    write(max_position_embeddings=64, rope_scaling={"type": "yarn", "factor": 4.0})
    assert resolve_max_model_len(tmp_path, 256) == 256, "as older configurations write it"
    write()
    assert resolve_max_model_len(tmp_path, 256) == 256
    with pytest.raises(ModelError, match="Set max_model_len"):
        resolve_max_model_len(tmp_path, None)


def test_hf_batches_stay_within_the_cache(tiny_model_dir, requests_of):
    engine = start_engine("hf", EngineOptions(str(tiny_model_dir), max_num_seqs=5))
    requests = requests_of(23)
    whole = engine.generate(requests)
    batches = engine._batches(requests)
    assert max(map(len, batches)) == 5
    engine._max_tokens, engine._max_rows = 150, 99
    batches = engine._batches(requests)
    assert sorted(row for rows in batches for row in rows) == list(range(23))
    for rows in batches:
        widest = max(len(requests[i].prompt_ids) + 12 for i in rows)
        assert len(rows) == 1 or len(rows) * widest <= 150
    assert len(batches) > 5
    assert [g.token_ids for g in engine.generate(requests)] == [g.token_ids for g in whole]


@pytest.mark.parametrize(
    ("path", "hinted"),
    [
        ("Qwen/Qwen2.5-0.5B-Instruct", True),
        ("models/no-such-model", False),  # its folder is there: a slip of the pen
        ("/abs/model", False),
        ("a/b/c", False),
    ],
)
def test_a_hub_id_gets_the_command_that_downloads_it(path, hinted, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    with pytest.raises(ModelError) as caught:
        check_model_dir(path, "model.path")
    name = path.rpartition("/")[2]
    command = f"`hf download {path} --local-dir models/{name}` and give models/{name}."
    assert (command in str(caught.value)) == hinted


def test_engine_arguments_are_those_of_vllm_and_not_ours():
    """By vLLM's own ``EngineArgs``: what we set ourselves, and what a user may add."""
    key = "actor_rollout_ref.rollout.engine_kwargs"
    check_engine_kwargs(key, {"max_num_batched_tokens": 4096, "quantization": "fp8"})
    with pytest.raises(ConfigError, match=rf"{key}\.max_num_batch_tokens .*max_num_batched_tokens"):
        check_engine_kwargs(key, {"max_num_batch_tokens": 4096})
    with pytest.raises(ConfigError, match=rf"{key}\.seed is set by refblend"):
        check_engine_kwargs(key, {"seed": 1})
    for on_gpu in (True, False):
        for name in engine_arguments(EngineOptions("x"), on_gpu):
            with pytest.raises(ConfigError, match="is set by refblend"):
                check_engine_kwargs(key, {name: 1})
    from vllm.engine.arg_utils import EngineArgs

    options = EngineOptions("x", tensor_model_parallel_size=2, sleep=True)
    made = EngineArgs(**engine_arguments(options, on_gpu=True))
    assert (made.distributed_executor_backend, made.sleep_mode_offload_cudagraph) == ("mp", True)


def test_a_vllm_for_gpus_is_not_started_without_one(tiny_model_dir, monkeypatch):
    """Ray hides all GPUs from an engine with num_gpus=0."""
    from vllm.platforms import current_platform

    monkeypatch.setattr(type(current_platform), "is_cpu", lambda platform: False)
    monkeypatch.setattr("vllm.LLM", None, raising=False)
    with pytest.raises(ResourceError, match=r"not built for CPUs.* \(num_gpus\)"):
        VllmEngine(EngineOptions(str(tiny_model_dir)))


def test_memory_that_other_programs_give_back_during_a_start_is_told(tiny_model_dir, monkeypatch):
    """vLLM's worker asserts that there is none."""
    told = "Error in memory profiling. Initial free memory 9 GiB, current free memory 12 GiB."
    monkeypatch.setattr("vllm.LLM", Mock(side_effect=AssertionError(told)))
    with pytest.raises(ResourceError, match=r"memory profiling.* keep other programs off its GPU"):
        VllmEngine(EngineOptions(str(tiny_model_dir)))


def test_rollout_and_judge_pass_their_options_on(tiny_config, monkeypatch):
    given: dict[str, EngineOptions] = {}
    monkeypatch.setattr(factory, "start_engine", lambda name, o: given.setdefault("rollout", o))

    def judge_engine(name, options):
        given["judge"] = options
        raise ModelError("enough", "seen")

    monkeypatch.setattr(generative, "start_engine", judge_engine)
    own = ("max_num_seqs=7", "enforce_eager=false", "engine_kwargs.cpu_offload_gb=2")
    judge = "algorithm.ref_quality_score.scoring"
    config = tiny_config(
        *(f"actor_rollout_ref.rollout.{text}" for text in own), *(f"{judge}.{text}" for text in own)
    )
    factory.start_rollout(config, "model")
    with pytest.raises(ModelError, match="enough"):
        generative.GenerativeJudge.start(config.algorithm.ref_quality_score, 0)
    for options in given.values():
        assert (options.max_num_seqs, options.enforce_eager) == (7, False)
        assert options.engine_kwargs == {"cpu_offload_gb": 2}

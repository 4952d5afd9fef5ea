"""Where answers end and prompts are too long: the real model on both engines."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from refblend.data.dataset import load_prompt_dataset
from refblend.data.schema import PromptRow, write_rows
from refblend.data.tokenizer import encode_chat
from refblend.errors import DataError
from refblend.rollout.base import EngineOptions, GenerationRequest, OverlengthError, RolloutEngine
from refblend.rollout.factory import start_engine

pytestmark = pytest.mark.real

LIMIT = 128
END_OF_TEXT, END = 0, 2
QUESTIONS = ("What is the capital of France?", "What is the capital of Italy?")
LONG = "A farmer has 12 hens, 日本語 and 🙂. " * 40


def row_of(index: int, question: str) -> PromptRow:
    return PromptRow(index, "test", [{"role": "user", "content": question}], question, "1", "")


def test_an_overlong_prompt_is_dropped_refused_or_cut(smollm_tokenizer, tmp_path) -> None:
    path = tmp_path / "rows.parquet"
    write_rows(path, [row_of(0, "4 - 1 ="), row_of(1, LONG)])
    length = len(encode_chat(smollm_tokenizer, [{"role": "user", "content": LONG}]))
    assert length > 5 * LIMIT
    kept = load_prompt_dataset(path, smollm_tokenizer, LIMIT)
    assert ([row.index for row in kept.rows], kept.n_dropped) == ([0], 1)
    reason = f"index 1 has {length} prompt tokens, data.max_prompt_length is {LIMIT}"
    with pytest.raises(DataError, match=reason):
        load_prompt_dataset(path, smollm_tokenizer, LIMIT, filter_overlong=False)
    for truncation in ("left", "middle"):
        cut = load_prompt_dataset(path, smollm_tokenizer, LIMIT, False, truncation)
        assert (len(cut), cut.n_truncated, len(cut.prompt_ids[1])) == (2, 1, LIMIT)
        text = smollm_tokenizer.decode(cut.prompt_ids[1])
        assert text.endswith("<|im_end|>\n<|im_start|>assistant\n")
        assert text.startswith("<|im_start|>system\n") is (truncation == "middle")


@pytest.fixture(scope="module")
def two_ends_dir(smollm_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model with a list of end tokens in its generation configuration, as later releases."""
    path = tmp_path_factory.mktemp("ends")
    for file in smollm_dir.iterdir():
        (path / file.name).symlink_to(file)
    (path / "generation_config.json").unlink()
    (path / "generation_config.json").write_text(json.dumps({"eos_token_id": [END_OF_TEXT, END]}))
    return path


@pytest.fixture(scope="module", params=["hf", pytest.param("vllm", marks=pytest.mark.engine)])
def engine(request: pytest.FixtureRequest, two_ends_dir: Path) -> Iterator[RolloutEngine]:
    options = EngineOptions(str(two_ends_dir), LIMIT, kv_cache_memory_mb=256)
    found = start_engine(request.param, options)
    yield found
    found.shutdown()


@pytest.mark.slow
def test_an_answer_ends_at_each_token_of_the_list(engine, two_ends_dir, smollm_tokenizer) -> None:
    """The model never writes `<|endoftext|>` by itself: it is given the embedding of " Paris"."""
    from transformers import AutoModelForCausalLM

    prompts = [encode_chat(smollm_tokenizer, [{"role": "user", "content": q}]) for q in QUESTIONS]
    requests = [GenerationRequest(prompt, 24, 0.0) for prompt in prompts]
    plain = engine.generate(requests)
    assert [answer.token_ids[-1] for answer in plain] == [END, END]
    (paris,) = smollm_tokenizer(" Paris", add_special_tokens=False)["input_ids"]
    model = AutoModelForCausalLM.from_pretrained(two_ends_dir, dtype=torch.float32)
    weights = {k: v.clone() for k, v in model.state_dict().items() if k != "lm_head.weight"}
    rows = weights["model.embed_tokens.weight"]
    rows[[END_OF_TEXT, paris]] = rows[[paris, END_OF_TEXT]]
    engine.load_weights(weights, 1)
    france, italy = engine.generate(requests)
    place = plain[0].token_ids.index(paris)
    assert france.token_ids == [*plain[0].token_ids[:place], END_OF_TEXT]
    assert italy.token_ids == plain[1].token_ids
    assert (france.finish_reason, italy.finish_reason) == ("stop", "stop")
    engine.load_weights({k: v for k, v in model.state_dict().items() if k in weights}, 2)


@pytest.mark.slow
def test_an_engine_refuses_a_prompt_without_room_for_an_answer(engine, smollm_tokenizer) -> None:
    ids = encode_chat(smollm_tokenizer, [{"role": "user", "content": LONG}])
    short = GenerationRequest(ids[:20], 4, 0.0)
    with pytest.raises(OverlengthError, match=r"1 prompts leave no room .* 128 tokens") as error:
        engine.generate([short, GenerationRequest(ids, 4, 0.0), short])
    assert error.value.indices == [1]
    longest = engine.generate([GenerationRequest(ids[: LIMIT - 1], 4, 0.0)])[0]
    assert (len(longest.token_ids), longest.finish_reason) == (1, "length")

"""The saved models load into vLLM and answer as our own loop does."""

from pathlib import Path
from typing import Any

import pytest

from refblend.data.tokenizer import encode_chat
from refblend.embedded.architecture import load_model, save_model
from refblend.embedded.generation import generate
from refblend.errors import ModelError
from refblend.rollout.base import EngineOptions, GenerationRequest
from refblend.rollout.factory import start_engine

pytestmark = pytest.mark.engine


def test_vllm_gives_the_same_greedy_answers(tmp_path: Path, model: Any, tokenizer: Any) -> None:
    (tmp_path / "other.txt").touch()
    with pytest.raises(ModelError, match="holds other files"):
        save_model(tmp_path, model, tokenizer, {})
    save_model(tmp_path / "model", model, tokenizer, {})
    (tmp_path / "model" / "optimizer.pt").write_bytes(b"ignored by every loader")
    network = load_model(tmp_path / "model")
    questions = ["Tom has 2 eggs.", "A bag holds 7 pens. Then 3 are sold. How many are left?"]
    prompts = [encode_chat(tokenizer, [{"role": "user", "content": q}]) for q in questions]
    ours = generate(network, prompts, tokenizer.eos_token_id, 12)
    engine = start_engine(
        "vllm",
        EngineOptions(model_path=str(tmp_path / "model"), max_model_len=128, kv_cache_memory_mb=32),
    )
    try:
        answers = engine.generate(
            [GenerationRequest(prompt, max_new_tokens=12, temperature=0.0) for prompt in prompts]
        )
    finally:
        engine.shutdown()
    assert [a.token_ids for a in answers] == [o.token_ids for o in ours]

"""The model that `make pretrained` makes is the one that its authors published."""

from pathlib import Path

import pytest

pytestmark = [pytest.mark.real, pytest.mark.slow]


def test_it_answers_in_its_own_format(smollm_dir: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(smollm_dir)
    model = AutoModelForCausalLM.from_pretrained(smollm_dir)
    assert model.num_parameters() == 134_515_008
    assert model.generation_config.eos_token_id == tokenizer.convert_tokens_to_ids("<|im_end|>")
    chat = [{"role": "user", "content": "What is the capital of France?"}]
    tokens = tokenizer.apply_chat_template(
        chat, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    written = model.generate(**tokens, do_sample=False, max_new_tokens=24)
    text = tokenizer.decode(written[0, tokens["input_ids"].shape[1] :])
    assert "Paris" in text

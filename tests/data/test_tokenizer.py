from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refblend.data.tokenizer import encode_chat, load_tokenizer, train_tokenizer
from refblend.errors import ModelError

CORPUS = [
    "Tom has 12 eggs. Ann gives 3 more.\n#### 15",
    r"12+3=15:11+55+\box{1.00}",
    "user\n",
    "assistant\n",
] * 20
TOKENIZER = train_tokenizer(CORPUS, vocab_size=400, model_max_length=128)


def pieces(text: str) -> list[str]:
    return [TOKENIZER.decode([i]) for i in TOKENIZER(text)["input_ids"]]


@given(st.text(max_size=60))
def test_any_text_comes_back(text: str) -> None:
    plain = TOKENIZER(text, split_special_tokens=True)["input_ids"]
    assert TOKENIZER.decode(plain) == text


def test_digits_and_signs_stand_apart_and_the_box_is_one_piece() -> None:
    assert pieces("12+3=15") == ["1", "2", "+", "3", "=", "1", "5"]
    assert pieces(r"55-\box{0.37}") == ["5", "5", "-", r"\box{", "0", ".", "3", "7", "}"]


def test_training_is_deterministic() -> None:
    again = train_tokenizer(CORPUS, vocab_size=400, model_max_length=128)
    assert again.get_vocab() == TOKENIZER.get_vocab()


def test_chat_template_and_generation_prompt(tmp_path: Path) -> None:
    TOKENIZER.save_pretrained(tmp_path)
    loaded = load_tokenizer(tmp_path)
    ids = encode_chat(loaded, [{"role": "user", "content": "Tom has 2 eggs."}])
    assert loaded.decode(ids) == (
        "<|im_start|>user\nTom has 2 eggs.<|im_end|>\n<|im_start|>assistant\n"
    )
    assert ids == encode_chat(TOKENIZER, [{"role": "user", "content": "Tom has 2 eggs."}])
    assert loaded.eos_token == "<|im_end|>"
    assert loaded.pad_token_id != loaded.eos_token_id
    assert loaded.model_max_length == 128
    assert {loaded.eos_token_id, loaded.pad_token_id} <= set(loaded.all_special_ids)


def test_without_chat_template_plain_text_is_encoded() -> None:
    class Plain:
        chat_template = None
        all_special_tokens = ("<eos>",)

        def __call__(self, text: str) -> dict[str, list[int]]:
            assert "<eos>" not in text
            return {"input_ids": [len(text)]}

    plain: Any = Plain()
    assert encode_chat(plain, [{"role": "user", "content": "abc"}]) == [3]
    spelt = [{"role": "user", "content": "a<eos>b"}]
    assert encode_chat(plain, spelt) == [8], "a special token is broken up, as with a template"


def test_missing_and_empty_directory(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="does not exist"):
        load_tokenizer(tmp_path / "none")
    with pytest.raises(ModelError, match="no usable tokenizer"):
        load_tokenizer(tmp_path)


def test_a_message_cannot_close_its_own_turn() -> None:
    plain = encode_chat(TOKENIZER, [{"role": "user", "content": "a"}])
    hostile = "a" + "".join(TOKENIZER.all_special_tokens)
    ids = encode_chat(TOKENIZER, [{"role": "user", "content": hostile}])
    for special in TOKENIZER.all_special_ids:
        assert ids.count(special) == plain.count(special)
    assert len(ids) > len(plain)

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from refblend.data.tokenizer import PAD, encode_chat, load_tokenizer, train_tokenizer
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


def plain_tokenizer(**special: str) -> Any:
    """Without a chat template; puts a token before and one after every text."""
    own = Tokenizer(models.WordLevel({"<s>": 0, "</s>": 1, "5": 2, "!": 3, "?": 4}, unk_token="?"))
    own.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    own.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)]
    )
    tokens = {"bos_token": "<s>", "eos_token": "</s>", **special}
    return PreTrainedTokenizerFast(tokenizer_object=own, **tokens)


def test_a_plain_prompt_begins_as_the_tokenizer_begins_and_has_no_end() -> None:
    tokenizer = plain_tokenizer()
    assert tokenizer("55")["input_ids"] == [0, 2, 2, 1]
    assert encode_chat(tokenizer, [{"role": "user", "content": "55"}]) == [0, 2, 2]


def test_a_tokenizer_that_puts_tokens_inside_a_text_is_refused() -> None:
    class Odd:
        name_or_path, eos_token, all_special_tokens = "odd", "</s>", ("</s>",)

        def __call__(self, text: str, add_special_tokens: bool = True) -> dict[str, list[int]]:
            return {"input_ids": [2, 1, 2] if add_special_tokens else [2, 2]}

    with pytest.raises(ModelError, match="chat_template"):
        encode_chat(Odd(), [{"role": "user", "content": "55"}])


@pytest.mark.parametrize("special", [{"pad_token": "!"}, {"additional_special_tokens": ["!"]}])
def test_words_that_are_special_tokens_stay_in_prompts(special: Any) -> None:
    tokenizer = plain_tokenizer(**special)
    assert encode_chat(tokenizer, [{"role": "user", "content": "5!"}]) == [0, 2, 3]
    tokenizer.chat_template = "{{ messages[0]['content'] }}"
    assert encode_chat(tokenizer, [{"role": "user", "content": "5!"}]) == [2, 3]


def test_a_message_cannot_close_its_own_turn() -> None:
    unnamed = type(TOKENIZER)(tokenizer_object=TOKENIZER.backend_tokenizer, eos_token=PAD)
    unnamed.chat_template = TOKENIZER.chat_template
    assert unnamed.all_special_tokens == [PAD], "as in models that name few of theirs"
    for tokenizer in (TOKENIZER, unnamed):
        plain = encode_chat(tokenizer, [{"role": "user", "content": "a"}])
        hostile = "a" + "".join(TOKENIZER.all_special_tokens)
        ids = encode_chat(tokenizer, [{"role": "user", "content": hostile}])
        for special in TOKENIZER.all_special_ids:
            assert ids.count(special) == plain.count(special)
        assert len(ids) > len(plain)

"""The prompt's form, its shared prefix, and the encoding in parts."""

import copy

import pytest

from refblend.errors import ScoringError
from refblend.scoring.prompts import PromptEncoder, scoring_prompt

SAMPLES = [
    ("Tom has 6 eggs. Ann gives 3 more. How many?", "6+3=9.\n#### 9"),
    ("", ""),
    ("A {question} with {response} in it", "{question} and \\box{x}"),
    ("<|im_end|>", "]]"),
]


def test_prefix_is_shared_by_all_samples(embedded, general, chat_tokenizer) -> None:
    for templates in (embedded, general):
        shared = templates.frame("full")[0]
        assert all(scoring_prompt(q, r, templates).startswith(shared) for q, r in SAMPLES)
        encoder = PromptEncoder(chat_tokenizer, templates)
        encoded = [encoder.encode(q, r, "full") for q, r in SAMPLES]
        assert len({p.frame.prefix for p in encoded}) == 1
        assert len(encoded[0].frame.prefix) > 0.5 * len(encoded[0])


def test_chat_template_wraps_the_message(embedded, chat_tokenizer) -> None:
    question, response = SAMPLES[0]
    prompt = PromptEncoder(chat_tokenizer, embedded).encode(question, response, "full")
    text = scoring_prompt(question, response, embedded)
    expected = chat_tokenizer.apply_chat_template(
        [{"role": "user", "content": text}], tokenize=False, add_generation_prompt=True
    )
    assert chat_tokenizer.decode(prompt.ids) == expected
    assert expected.endswith("End with one \\box{x}.<|im_end|>\n<|im_start|>assistant\n")
    assert prompt.ids[0] == chat_tokenizer.convert_tokens_to_ids("<|im_start|>")


def test_plain_tokenizer_gets_the_answer_slot(embedded, plain_tokenizer) -> None:
    prompt = PromptEncoder(plain_tokenizer, embedded).encode("q", "a", "full")
    text = scoring_prompt("q", "a", embedded)
    assert plain_tokenizer.decode(prompt.ids) == f"{text}\nVerdict:"


MESSAGE = "messages[0]['content']"


@pytest.mark.parametrize(
    "template", [f"{{{{ {MESSAGE} + {MESSAGE} }}}}", "nothing", f"{{{{ {MESSAGE}[:30] }}}}"]
)
def test_chat_template_that_hides_the_message_is_refused(template, embedded, chat_tokenizer):
    tokenizer = copy.deepcopy(chat_tokenizer)
    tokenizer.chat_template = template
    with pytest.raises(ScoringError, match="chat template"):
        PromptEncoder(tokenizer, embedded)

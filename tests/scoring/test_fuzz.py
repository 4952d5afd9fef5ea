"""A long fuzz of quoting, parser and clipper: no exception, every invariant, > 100,000 inputs.

Inputs are drawn by a seeded generator from fragments that have something to do with the prompt,
and from all of unicode; hypothesis is too slow for this number.
"""

import unicodedata

import numpy as np
import pytest

from refblend.scoring.clipping import MIN_DATA_TOKENS, ScoringLimits, plan_request
from refblend.scoring.parsing import parse_score
from refblend.scoring.prompts import PromptEncoder
from refblend.scoring.quote import neutralise

FRAGMENTS = (
    *("\\box{", "\\boxed{", "\\ box {", "box{", "}", "{", "\\", "\\frac{", "}{", "1", "0", "0.37"),
    *(".", ",", "/", "%", "\\%", "-", "+", "e9", "nan", "inf", " ", "\n", "[[", "]]", "[", "]"),
    *(
        "=",
        "===",
        "<|im_end|>",
        "<|im_start|>",
        "<|",
        "|>",
        "<",
        ">",
        "</s>",
        "[INST]",
        "<tool_call>",
    ),
    *(
        "\u200b",
        "\u0338",
        "\u0301",
        "＼",
        "ｂｏｘ",
        "﹛",
        "∖",
        "⟦",
        "⟧",
        "о",
        "х",
        "\ud83d",
        "\x00",
    ),
    *("6+3=9. ", "#### 41", "Question: ", "Answer: ", "é", "數", "🙂", "²", "½", "\u202e"),
)
MARKERS = ("===", "<|im_end|>", "<|im_start|>", "<tool_call>", "[CLS]")


class Source:
    """Seeded hostile text."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def text(self, longest: int = 14) -> str:
        length = int(self.rng.integers(0, longest))
        picks = self.rng.random(length)
        pieces = [
            FRAGMENTS[int(self.rng.integers(len(FRAGMENTS)))]
            if pick < 0.8
            else chr(int(self.rng.integers(0x110000 if pick < 0.9 else 0x250)))
            for pick in picks
        ]
        text = "".join(pieces)
        return text * int(self.rng.integers(1, 60)) if self.rng.random() < 0.05 else text


@pytest.mark.parametrize("count", [2000, pytest.param(40_000, marks=pytest.mark.slow)])
def test_quoting(count: int) -> None:
    source = Source(1)
    for _ in range(count):
        text = source.text()
        once = neutralise(text, MARKERS)
        assert neutralise(once, MARKERS) == once, ascii(text)
        for marker in ("[[", "]]", "\\box", *MARKERS):
            assert marker not in once, ascii(text)
        assert not any(unicodedata.category(c) in ("Cf", "Cs") for c in once), ascii(text)


@pytest.mark.parametrize("count", [2000, pytest.param(50_000, marks=pytest.mark.slow)])
def test_parser(count: int, chat_tokenizer) -> None:
    source = Source(2)
    for _ in range(count):
        text = source.text()
        size = int(source.rng.integers(0, 30))
        ids = source.rng.integers(0, len(chat_tokenizer), size).tolist()
        if source.rng.random() < 0.7:
            plain = text.encode("utf-8", "replace").decode()
            ids = chat_tokenizer(plain, add_special_tokens=False)["input_ids"]
        top = [
            {int(i): float(-source.rng.exponential()) for i in source.rng.integers(0, 400, 5)}
            if source.rng.random() < 0.9
            else None
            for _ in range(int(source.rng.integers(0, len(ids) + 2)))
        ]
        for result in (
            parse_score(text),
            parse_score(text, ids, chat_tokenizer),
            parse_score(text, ids, chat_tokenizer, top, score_mode="expected"),
        ):
            assert 0.0 <= result.score <= 1.0, ascii(text)
            assert result.valid == (result.path in ("text", "token")), ascii(text)
            assert result.valid or result.score == 0.5, ascii(text)


@pytest.mark.parametrize("count", [500, pytest.param(12_000, marks=pytest.mark.slow)])
def test_planning(count: int, all_tokenizers, embedded, general) -> None:
    source = Source(4)
    tokenizers = list(all_tokenizers.values())
    encoders = {
        (tokenizer, templates.header): PromptEncoder(tokenizer, templates)
        for tokenizer in tokenizers
        for templates in (embedded, general)
    }
    for _ in range(count):
        tokenizer = tokenizers[int(source.rng.integers(len(tokenizers)))]
        templates = (embedded, general)[int(source.rng.integers(2))]
        form = ("compact", "full")[int(source.rng.integers(2))]
        encoder = encoders[tokenizer, templates.header]
        smallest = len(encoder.frame("compact")) + MIN_DATA_TOKENS
        allowed = smallest + int(source.rng.integers(0, 1200))
        limits = ScoringLimits(allowed + 4, None, 10**6, 0, 4)
        question, response = source.text(), source.text(40)
        plan = plan_request(encoder, question, response, limits.allowed_length, form)
        frame = encoder.frame(plan.template)
        ids = tuple(plan.token_ids)
        assert len(ids) <= allowed
        assert not plan.overlength
        assert ids[: len(frame.prefix)] == frame.prefix
        assert ids[-len(frame.suffix) :] == frame.suffix
        inside = ids[len(frame.prefix) : -len(frame.suffix)]
        # A tokenizer with an unknown token may need it for our own text between the two.
        ours = sum(i in encoder.special_ids for i in frame.between)
        assert sum(i in encoder.special_ids for i in inside) == ours, ascii((question, response))

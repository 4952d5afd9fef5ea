"""The parser's decisions, each by an example; and that nothing makes it raise."""

import csv
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refblend.scoring.parsing import parse_score

with Path(__file__).with_name("boxes.csv").open(encoding="utf-8", newline="") as file:
    WRITTEN = [(row["text"], row["score"]) for row in csv.DictReader(file)]
"""What a judge writes, and the score that is read; none where it is not valid."""
WRITTEN += [(f"\\box{{{long}}}", "") for long in ("9" * 5000, "9" * 150 + "e999", "0" * 300)]


@pytest.mark.parametrize(("text", "score"), WRITTEN)
def test_what_is_written_is_read(text: str, score: str) -> None:
    result = parse_score(text)
    if not score:
        assert (result.score, result.valid, result.path) == (0.5, False, "default")
        return
    assert (result.valid, result.path) == (True, "text")
    assert result.score == pytest.approx(float(score), abs=1e-12)
    assert math.copysign(1.0, result.score) == 1.0


def test_invalid_score_is_an_option() -> None:
    assert parse_score("nothing", invalid_score=0.25).score == 0.25


def encode(tokenizer, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def parse(tokenizer, text: str, top=None, mode: str = "text"):
    """With the judge's tokens, and perhaps their log-probabilities."""
    return parse_score(text, encode(tokenizer, text), tokenizer, top, score_mode=mode)


@pytest.mark.parametrize(
    ("text", "score"),
    [
        (r"3+4=7:77+\box{0.37", 0.37),
        (r"\box{0.3", 0.3),
        ("box{0.8}", 0.8),
        ("box(0.8)", 0.8),
        ("\\bo\nx{0. 8 1}", 0.81),
        ("boxed {0.4}", 0.4),
    ],
)
def test_token_parser_reads_what_the_text_parser_cannot(text, score, chat_tokenizer) -> None:
    result = parse(chat_tokenizer, text)
    assert (result.score, result.valid, result.path) == (pytest.approx(score), True, "token")


UNREADABLE = [r"\box{0", r"\box{1", r"\box{", r"\box{8.5", r"\box{1.7}", "0.7", "a box", ""]


@pytest.mark.parametrize("text", UNREADABLE)
def test_token_parser_does_not_guess(text: str, chat_tokenizer) -> None:
    result = parse(chat_tokenizer, text)
    assert (result.score, result.valid, result.path) == (0.5, False, "default")


def test_special_tokens_of_the_judge_are_not_text(chat_tokenizer) -> None:
    ids = [*encode(chat_tokenizer, r"\box{0.3"), chat_tokenizer.eos_token_id]
    text = chat_tokenizer.decode(ids, skip_special_tokens=True)
    assert parse_score(text, ids, chat_tokenizer).score == pytest.approx(0.3)


def logprobs(tokenizer, text: str, changes: dict[int, dict[str, float]]):
    """Certain tokens, except where ``changes`` gives probabilities by position."""
    rows = []
    for position, token in enumerate(encode(tokenizer, text)):
        row = {token: 0.0}
        if position in changes:
            row = {
                encode(tokenizer, digit)[0]: math.log(p) for digit, p in changes[position].items()
            }
        rows.append(row)
    return rows


def position_of(tokenizer, text: str, characters: int) -> int:
    """Index of the token that covers character number ``characters``."""
    ids, seen = encode(tokenizer, text), 0
    for index, token in enumerate(ids):
        seen += len(tokenizer.decode([token]))
        if seen > characters:
            return index
    raise AssertionError


def test_expected_value_of_digits(chat_tokenizer) -> None:
    text = r"\box{0.37}"
    tenths = position_of(chat_tokenizer, text, 7)
    hundredths = position_of(chat_tokenizer, text, 8)
    top = logprobs(
        chat_tokenizer, text, {tenths: {"3": 0.5, "5": 0.3, "x": 0.2}, hundredths: {"7": 1.0}}
    )
    result = parse(chat_tokenizer, text, top, "expected")
    # 0.8 of the mass is on digits: (0.5·3 + 0.3·5) / 0.8 = 3.75 tenths, and 7 hundredths.
    assert result.score == pytest.approx(0.375 + 0.07)
    assert result.path == "text"
    assert parse(chat_tokenizer, text, top).score == 0.37


@pytest.mark.parametrize(
    ("text", "p_one", "expected"),
    [(r"\box{0.50}", 0.2, 0.2 + 0.8 * 0.5), (r"\box{1.00}", 0.6, 0.6 + 0.4 * 0.5)],
)
def test_expected_value_of_the_leading_digit(text, p_one, expected, chat_tokenizer) -> None:
    lead = position_of(chat_tokenizer, text, 5)
    top = logprobs(chat_tokenizer, text, {lead: {"1": p_one, "0": 1 - p_one}})
    result = parse(chat_tokenizer, text, top, "expected")
    assert result.score == pytest.approx(expected)


@pytest.mark.parametrize("text", [r"\box{30%}", r"\box{3/10}", r"\box{0.30", r"\box{0.30} \box{0"])
def test_expected_value_needs_a_plain_decimal_in_the_box_that_was_read(text, chat_tokenizer):
    top = logprobs(chat_tokenizer, text, {})
    assert parse(chat_tokenizer, text, top, "expected").score == pytest.approx(0.3)


def test_token_parser_weighs_digits_whatever_the_mode(chat_tokenizer) -> None:
    text = r"\box{0.3"
    tenths = position_of(chat_tokenizer, text, 7)
    top = logprobs(chat_tokenizer, text, {tenths: {"3": 0.6, "5": 0.4}})
    result = parse(chat_tokenizer, text, top)
    assert (result.score, result.path) == (pytest.approx(0.38), "token")


PIECES = (
    *(r"\box{", r"\boxed{", "box{", "}", "{", "\\", r"\frac{", "}{", "<think>", "</think>"),
    *("1", "0", "0.37", ".", "/", "%", r"\%", "-", "e9", "nan", "inf"),
)
TOP = st.none() | st.dictionaries(st.integers(0, 400), st.floats(-9, 0), max_size=5)


@given(
    st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=14).map("".join),
    st.lists(TOP, max_size=20),
)
def test_nothing_makes_it_raise(chat_tokenizer, text, top) -> None:
    ids = encode(chat_tokenizer, text)
    for result in (
        parse_score(text),
        parse_score(text, ids, chat_tokenizer),
        parse_score(text, ids, chat_tokenizer, top, score_mode="expected"),
    ):
        assert 0.0 <= result.score <= 1.0
        assert result.valid == (result.path in ("text", "token"))
        assert result.valid or result.score == 0.5

from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refblend.errors import DataError
from refblend.rewards.gsm8k import compute_score, extract_number

NUMBERS = st.decimals(-10_000_000, 10_000_000, places=2) | st.integers(-(10**9), 10**9).map(Decimal)
WORDS = st.text(alphabet=st.characters(blacklist_categories=("Nd", "Cs", "No", "Nl")), max_size=30)


@given(NUMBERS, WORDS, st.sampled_from(["{}", "{}.", "${}", "{:,}", "{} apples", " {}"]))
def test_what_is_written_is_read(number, words, form):
    text = f"{words} 1+1=2 #### {form.format(number)}"
    assert extract_number(text, "strict") == number
    assert extract_number(text, "flexible") == number
    assert compute_score(text, str(number)) == 1.0
    assert compute_score(text, f"{number:,}", "flexible") == 1.0
    assert compute_score(text, str(number + 1)) == 0.0


@given(st.text(alphabet="#$-−+.,0123456789 \nab\\", max_size=60))
@settings(max_examples=300)
def test_no_text_breaks_it(text):
    strict, flexible = extract_number(text, "strict"), extract_number(text, "flexible")
    if strict is not None:
        assert "####" in text
        assert flexible is not None
    assert compute_score(text, "1") in (0.0, 1.0)


def test_the_whole_text_is_scanned():
    text = "#### 42" + " words" * 1000
    assert compute_score(text, "42", "strict") == 1.0
    assert compute_score(text, "42", "flexible") == 1.0


@pytest.mark.parametrize(
    "piece", ["####", "#### ", "9", "9,", "9.", "-", "$", "#### -$", "\\$ ", "#### 9/"]
)
def test_long_answers_take_linear_time(piece):
    # a quadratic scan of 200,000 characters would take minutes
    for method in ("strict", "flexible"):
        extract_number(piece * (200_000 // len(piece)), method)


def test_long_numbers_are_compared_exactly():
    assert compute_score(f"#### 1/{'9' * 5000}", "1", "strict") == 0.0
    digits = "9" * 60
    assert compute_score(f"#### -{digits}", f"-{digits}") == 1.0
    assert compute_score(f"#### -{digits}", f"-{digits[:-1]}8") == 0.0


@pytest.mark.parametrize("gold", ["42", "42.0", "42.", "$42", " 42 ", 42, "+42"])
def test_gold_answers_are_normalised_too(gold):
    assert compute_score("#### 42", gold) == 1.0


@pytest.mark.parametrize("gold", ["", "x=3", "three", "1/2", "4 2"])
def test_a_gold_answer_that_is_no_number_is_a_data_error(gold):
    with pytest.raises(DataError, match="custom_reward_function"):
        compute_score("#### 5", gold)


def test_unknown_method():
    with pytest.raises(ValueError, match="strict or flexible"):
        extract_number("5", "loose")  # type: ignore[arg-type]

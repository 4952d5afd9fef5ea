"""The oracle's score, worked by hand."""

import pytest

from refblend.rewards.imperfect import partial_credit

SOLUTION = "He has 13-10=3 left. Then 3 * 4 = 12.\n#### 12"


@pytest.mark.parametrize(
    ("response", "correct", "score"),
    [
        ("13-10=3, 3*4=12 #### 12", 1.0, 1.0),
        ("13-10=3, 3*4=12 #### 13", 0.0, 0.5),
        ("13 - 10 = 3. 3+4=7 #### 7", 0.0, 0.25),
        ("13-10=3 13-10=3 #### 3", 0.0, 0.25),  # a repeated step counts once
        ("#### 12", 1.0, 0.5),
        ("13-10=4", 0.0, 0.0),
        ("", 0.0, 0.0),
    ],
)
def test_half_for_the_answer_and_half_for_the_steps(response, correct, score) -> None:
    assert partial_credit(response, SOLUTION, correct) == score


@pytest.mark.parametrize("correct", [0.0, 1.0])
def test_without_steps_the_answer_alone_counts(correct) -> None:
    assert partial_credit("13-10=3", "#### 3", correct) == correct

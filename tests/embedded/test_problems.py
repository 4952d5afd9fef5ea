import operator
import re

import pytest

from refblend.embedded import phrases
from refblend.embedded.problems import EASY, SPLITS, Difficulty, draw_problem, generate_problems
from refblend.errors import DataError
from refblend.seeding import derive_generator

HARD = Difficulty(start_max=50, value_max=99, addend_max=40)

OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}


def solve_from_text(question: str) -> int:
    """Answer a question by matching each sentence against the templates, independently."""
    value: float | None = None
    for sentence in re.split(r"(?<=[.?])\s+", question):
        number = re.search(r"\d+", sentence)
        if number is None:
            continue
        if value is None:
            value = int(number.group())
            continue
        for op, variants in phrases.STEPS.items():
            for variant in variants:
                pattern = re.sub(r"\\\{(?:m|n|o)\\\}", r"\\w+", re.escape(variant))
                pattern = pattern.replace(r"\{v\}", r"(\d+)")
                if match := re.fullmatch(pattern, sentence):
                    value = OPERATORS[op](value, int(match.group(1)))
                    break
    assert value is not None
    assert value == int(value)
    return int(value)


@pytest.mark.parametrize("level", [EASY, HARD])
def test_question_solution_and_answer_agree(level: Difficulty) -> None:
    rng = derive_generator(3, "test")
    for _ in range(300):
        problem = draw_problem(rng, level, long=bool(rng.random() < 0.2))
        assert solve_from_text(problem.question) == problem.answer
        assert problem.solution.endswith(f"\n#### {problem.answer}")
        value = problem.steps[0].left
        for step in problem.steps:
            assert step.left == value
            value = OPERATORS[step.op](value, step.right)
            assert step.result == value
            assert 1 <= step.result <= level.value_max
            assert step.equation in problem.solution
        assert 1 <= len(problem.steps) <= 3


def test_splits_are_disjoint_by_templates_and_numbers_whatever_the_seed() -> None:
    keys = {
        split: {p.key for seed in (1, 2) for p in generate_problems(split, 60, seed)}
        for split in SPLITS
    }
    for one in SPLITS:
        for other in SPLITS:
            assert one == other or not keys[one] & keys[other]


def test_problems_of_a_file_have_different_keys_and_all_step_counts() -> None:
    problems = generate_problems("train", 400, seed=1)
    assert len({p.key for p in problems}) == 400
    assert {len(p.steps) for p in problems} == {1, 2, 3}
    assert {step.op for p in problems for step in p.steps} == set("+-*/")


def test_too_many_problems_asked_for() -> None:
    narrow = Difficulty(start_min=2, start_max=2, value_max=3, addend_max=1, step_weights=(1, 0, 0))
    with pytest.raises(DataError, match=r"only .* different train problems"):
        generate_problems("train", 5000, seed=1, level=narrow)

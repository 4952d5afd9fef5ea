import pytest
from hypothesis import given
from hypothesis import strategies as st

from refblend.embedded.demonstrations import sloppy_solution
from refblend.embedded.judge_format import label_of, render_verdict
from refblend.embedded.problems import Problem, Step, draw_problem
from refblend.embedded.recipe import TokenizerRecipe
from refblend.scoring.parsing import parse_score
from refblend.seeding import derive_generator

PROBLEM = Problem("q", (Step(13, "-", 10, 3), Step(3, "+", 38, 41)), "k", False)


@pytest.mark.parametrize(
    ("response", "label"),
    [
        ("13-10=3. 3+38=41.\n#### 41", 1.0),
        ("#### 41", 0.7),
        ("13-10=3. 3+38=45.\n#### 41", 0.85),
        ("13-10=3. 3+38=41.\n#### 45", 0.35),
        ("#### 45", 0.05),
        ("", 0.05),
        ("13-10=3. 3+38=41.", 0.35),
        ("113-10=3. 3+38=411.\n#### 411", 0.05),
        ("#### 7\n#### 41", 0.7),
    ],
)
def test_labels(response: str, label: float) -> None:
    assert label_of(PROBLEM, response) == pytest.approx(label)


@given(st.integers(0, 10_000))
def test_verdicts_parse_to_the_label(seed: int) -> None:
    rng = derive_generator(seed)
    problem = draw_problem(rng)
    habit = TokenizerRecipe(terse_share=0.3, wrong_step_probability=0.5)
    response = sloppy_solution(rng, problem, habit)
    verdict = render_verdict(problem, response)
    parsed = parse_score(verdict)
    assert parsed.valid
    assert parsed.score == pytest.approx(label_of(problem, response))
    assert 0.05 <= parsed.score <= 1.0

r"""The embedded judge's output format, and the score it should give.

For a three-step problem with answer 41 and a response that says 45 the judge writes::

    45;13-10=3+38=41:44+15-\box{0.05}

the response's answer, its own chain of equations, then a digit-by-digit comparison of the two
(``44+`` equal, ``15-`` different, ``_`` where one is shorter or missing), then the box. A small
model that writes the box directly is near chance; one that works the problem but does not compare
ignores its own result; and one that compares without first copying the response's answer copies its
own result into both places (measured: AUC 0.56 after 340 steps, with problems worked correctly).
"""

import re

from refblend.data.equations import EQUATION
from refblend.embedded.problems import Problem

_FINAL = re.compile(r"####\s*(-?\d+)(?!\d)")

FLOOR, RIGHT_ANSWER, RIGHT_STEPS = 0.05, 0.65, 0.30
"""Parts of the label. The floor distinguishes a valid score from a missing one (non-zero rate)."""
MAX_COMPARED_DIGITS = 3


def stated_answer(response: str) -> str | None:
    """The number after the last ``####``, or None."""
    found = _FINAL.findall(response)
    return found[-1] if found else None


def label_of(problem: Problem, response: str) -> float:
    """A perfect judge's score, in [0.05, 1]: right answer 0.65, right steps up to 0.30."""
    answer = stated_answer(response)
    right = answer is not None and int(answer) == problem.answer
    stated = {(int(a), op, int(b), int(c)) for a, op, b, c in EQUATION.findall(response)}
    shown = [(step.left, step.op, step.right, step.result) in stated for step in problem.steps]
    share = sum(shown) / len(shown)
    return round(FLOOR + RIGHT_ANSWER * right + RIGHT_STEPS * share, 2)


def render_comparison(own: str, other: str | None) -> str:
    """Digit pairs from the left, right-aligned, each followed by ``+`` (equal) or ``-``."""
    other = (other or "")[-MAX_COMPARED_DIGITS:]
    width = max(len(own), len(other))
    pairs = zip(own.rjust(width, "_"), other.rjust(width, "_"), strict=True)
    return "".join(f"{a}{b}{'+' if a == b else '-'}" for a, b in pairs)


def copy_answer(stated: str | None) -> str:
    """The response's answer as the judge repeats it: its last digits, or ``_``."""
    return (stated or "_")[-MAX_COMPARED_DIGITS:]


def render_verdict(problem: Problem, response: str) -> str:
    r"""The judge's whole output for a response, ending in ``\box{score}``."""
    stated = stated_answer(response)
    comparison = render_comparison(str(problem.answer), stated)
    score = f"{label_of(problem, response):.2f}"
    steps = "".join(f"{step.op}{step.right}={step.result}" for step in problem.steps)
    chain = f"{problem.steps[0].left}{steps}"
    return f"{copy_answer(stated)};{chain}:{comparison}\\box{{{score}}}"

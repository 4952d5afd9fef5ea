"""Texts that the embedded actor learns from: worked solutions, and the sloppy habit.

The *clean* phase teaches the model to work each problem. The short *sloppy* phase overlays a bad
habit with high entropy: terse answers, and rambling ones whose steps are mostly wrong. Then
reinforcement learning has something to improve, and entropy can fall as accuracy rises.
"""

import operator

import numpy as np

from refblend.embedded import phrases
from refblend.embedded.problems import Problem, Step, render_solution
from refblend.embedded.recipe import ActorRecipe, TokenizerRecipe

_APPLIED = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.floordiv}


def corrupt_steps(
    rng: np.random.Generator, steps: tuple[Step, ...], probability: float
) -> list[Step]:
    """The chain with each result wrong, by 1 to 3, with ``probability``; later steps go on from it.

    Inexact division is rounded down. No result is negative unless one of ``steps`` is.
    """
    chain: list[Step] = []
    value = steps[0].left
    signed = any(step.result < 0 for step in steps)
    for step in steps:
        right = step.right
        result = _APPLIED[step.op](value, right)
        if not signed:
            result = max(result, 0)
        if rng.random() < probability:
            offset = int(rng.integers(1, 4)) * (1 if rng.random() < 0.5 else -1)
            result = result + offset if signed or result + offset >= 0 else result + abs(offset)
        chain.append(Step(value, step.op, right, result))
        value = result
    return chain


def rambling_solution(
    rng: np.random.Generator, problem: Problem, wrong_step_probability: float, filler_share: float
) -> str:
    """Filler sentences between mostly wrong steps, ending in the chain's own last value."""
    chain = corrupt_steps(rng, problem.steps, wrong_step_probability)
    sentences = [_filler(rng)]
    for step in chain:
        while rng.random() < filler_share:
            sentences.append(_filler(rng))
        sentences.append(f"{step.equation}.")
    return f"{' '.join(sentences)}\n#### {chain[-1].result}"


def sloppy_solution(
    rng: np.random.Generator, problem: Problem, habit: ActorRecipe | TokenizerRecipe
) -> str:
    """A demonstration of the second phase: terse and right, or rambling and mostly wrong."""
    if rng.random() < habit.terse_share:
        return render_solution([], problem.answer)
    return rambling_solution(rng, problem, habit.wrong_step_probability, habit.filler_share)


def _filler(rng: np.random.Generator) -> str:
    return phrases.FILLER[int(rng.integers(len(phrases.FILLER)))]

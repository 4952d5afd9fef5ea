"""A generator of word problems in the style of GSM8K: one to three exact steps of arithmetic.

A problem is a start value and a chain of ``+ - * /`` steps, told in template sentences; all is a
function of the seed. Its *key* consists of its templates and numbers, and a hash of the key is the
split it belongs to: no key can be in two splits, whatever the seeds and sizes.
"""

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from refblend.config.base import PositiveInt, Section
from refblend.embedded import phrases
from refblend.errors import DataError
from refblend.seeding import derive_generator, derive_seed

Split = Literal["train", "validation", "test", "sanity"]
_SPLIT_BOUNDS: dict[Split, int] = {"train": 70, "validation": 80, "test": 95, "sanity": 100}
SPLITS = tuple(_SPLIT_BOUNDS)
APPLIED = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.floordiv}
_GIVE_UP_AFTER = 2000  # draws in a row without a new problem


class Difficulty(Section):
    """How large the numbers are and how many steps a problem has; the defaults are the easy bed."""

    start_min: PositiveInt = 2
    """Smallest start value."""
    start_max: PositiveInt = 9
    """Largest start value."""
    value_max: PositiveInt = 20
    """Largest running value."""
    addend_max: PositiveInt = 10
    """Largest number added or taken away."""
    factor_max: PositiveInt = 5
    """Largest factor and divisor; the smallest is 2."""
    step_weights: tuple[float, float, float] = (0.34, 0.33, 0.33)
    """Shares of problems with one, two and three steps."""

    def _misfits(self) -> Iterator[str]:
        if not self.start_min <= self.start_max <= self.value_max:
            yield "start_min <= start_max <= value_max must hold; change one of them"
        if min(self.step_weights) < 0 or sum(self.step_weights) <= 0:
            yield "step_weights must be non-negative with a positive sum"


EASY = Difficulty()


@dataclass(frozen=True)
class Step:
    """One equation: ``left op right = result``; ``op`` is one of ``+ - * /``."""

    left: int
    op: str
    right: int
    result: int

    @property
    def equation(self) -> str:
        """For example ``13-10=3``."""
        return f"{self.left}{self.op}{self.right}={self.result}"


@dataclass(frozen=True)
class Problem:
    """A word problem with its chain of steps; ``key`` names templates and numbers."""

    question: str
    steps: tuple[Step, ...]
    key: str
    long: bool
    instruction: str = ""
    """Said to the actor after the question; a judge does not see it."""

    @property
    def prompt(self) -> str:
        """What the actor is asked."""
        return f"{self.question} {self.instruction}" if self.instruction else self.question

    @property
    def answer(self) -> int:
        """The value after the last step."""
        return self.steps[-1].result

    @property
    def solution(self) -> str:
        """The worked solution, one equation per step, ending in ``#### answer``."""
        return render_solution([step.equation for step in self.steps], self.answer)

    @property
    def split(self) -> Split:
        """The only one that this problem may appear in: 70 / 10 / 15 / 5 per cent, by a hash."""
        bucket = derive_seed("split", self.key) % 100
        return next(name for name, bound in _SPLIT_BOUNDS.items() if bucket < bound)


def render_solution(equations: list[str], answer: int | str) -> str:
    """The text of a solution: sentences of equations, a line break and ``#### answer``."""
    worked = " ".join(f"{equation}." for equation in equations)
    return f"{worked}\n#### {answer}" if worked else f"#### {answer}"


def _draw_step(rng: np.random.Generator, value: int, level: Difficulty) -> Step | None:
    """A step from ``value``, each possible operation equally likely; None if there is none."""
    room, factor_room = level.value_max - value, level.value_max // value
    divisors = [d for d in range(2, level.factor_max + 1) if value % d == 0]
    choices: list[tuple[str, list[int]]] = [
        ("+", list(range(1, min(level.addend_max, room) + 1))),
        ("-", list(range(1, min(level.addend_max, value - 1) + 1))),
        ("*", list(range(2, min(level.factor_max, factor_room) + 1))),
        ("/", divisors),
    ]
    choices = [(op, numbers) for op, numbers in choices if numbers]
    if not choices:
        return None
    op, numbers = choices[int(rng.integers(len(choices)))]
    right = numbers[int(rng.integers(len(numbers)))]
    return Step(value, op, right, APPLIED[op](value, right))


def draw_problem(rng: np.random.Generator, level: Difficulty = EASY, long: bool = False) -> Problem:
    """Draw one problem; ``long`` puts 10 to 24 irrelevant sentences between its sentences."""
    weights = np.asarray(level.step_weights, dtype=float)
    n_steps = 1 + int(rng.choice(3, p=weights / weights.sum()))
    start = int(rng.integers(level.start_min, level.start_max + 1))
    steps: list[Step] = []
    while len(steps) < n_steps:
        step = _draw_step(rng, steps[-1].result if steps else start, level)
        if step is None:
            break
        steps.append(step)

    name, other = (str(x) for x in rng.choice(phrases.NAMES, size=2, replace=False))
    words = {"n": name, "m": other, "o": str(rng.choice(phrases.OBJECTS))}
    opening = int(rng.integers(len(phrases.OPENINGS)))
    closing = int(rng.integers(len(phrases.QUESTIONS)))
    sentences = [phrases.OPENINGS[opening].format(v=start, **words)]
    ids = [f"o{opening}:{start}"]
    for step in steps:
        variants = phrases.STEPS[step.op]
        variant = int(rng.integers(len(variants)))
        sentences.append(variants[variant].format(v=step.right, **words))
        ids.append(f"{step.op}{variant}:{step.right}")
    if long:
        for _ in range(int(rng.integers(10, 25))):
            where = int(rng.integers(1, len(sentences) + 1))
            sentences.insert(where, str(rng.choice(phrases.PADDING)).format(**words))
    sentences.append(phrases.QUESTIONS[closing].format(**words))
    ids.append(f"q{closing}")
    if not steps:  # nothing can follow the start value under these limits
        raise DataError(
            f"no step is possible from {start} with value_max={level.value_max}",
            "Raise value_max or addend_max.",
        )
    return Problem(" ".join(sentences), tuple(steps), "|".join(ids), long)


def iterate_problems(
    split: Split, seed: int, level: Difficulty = EASY, long_share: float = 0.0
) -> Iterator[Problem]:
    """Endless stream of problems of one split (keys may repeat), a function of the arguments."""
    rng = derive_generator(seed, "problems", split)
    while True:
        problem = draw_problem(rng, level, long=bool(rng.random() < long_share))
        if problem.split == split:
            yield problem


def generate_problems(
    split: Split, count: int, seed: int, level: Difficulty = EASY, long_share: float = 0.0
) -> list[Problem]:
    """``count`` problems of a split with different keys; DataError if there are not that many."""
    problems: dict[str, Problem] = {}
    since_new = 0
    for problem in iterate_problems(split, seed, level, long_share):
        since_new = 0 if problem.key not in problems else since_new + 1
        problems.setdefault(problem.key, problem)
        if len(problems) == count:
            return list(problems.values())
        if since_new == _GIVE_UP_AFTER:
            break
    raise DataError(
        f"only {len(problems)} different {split} problems were found, {count} were asked for",
        "Ask for fewer rows or widen the difficulty (start_max, value_max, addend_max).",
    )

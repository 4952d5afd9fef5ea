"""Texts that the embedded models learn from: demonstrations, and the tokenizer's corpus.

The *clean* phase teaches the actor to work each problem. The short *sloppy* phase overlays a bad
habit with high entropy: terse answers, and rambling ones whose steps are mostly wrong. Then
reinforcement learning has something to improve, and entropy can fall as accuracy rises.
"""

from typing import Any

import numpy as np

from refblend.data.schema import ROLES
from refblend.data.tokenizer import train_tokenizer
from refblend.embedded import phrases
from refblend.embedded.judge_format import render_verdict
from refblend.embedded.problems import APPLIED, Problem, Step, iterate_problems, render_solution
from refblend.embedded.recipe import ActorRecipe, EmbeddedConfig, TokenizerRecipe
from refblend.scoring.prompts import scoring_prompt
from refblend.scoring.templates import PromptForm, ScoringTemplates
from refblend.seeding import derive_generator


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
        result = APPLIED[step.op](value, step.right)
        if not signed:
            result = max(result, 0)
        if rng.random() < probability:
            offset = int(rng.integers(1, 4)) * (1 if rng.random() < 0.5 else -1)
            result = result + offset if signed or result + offset >= 0 else result + abs(offset)
        chain.append(Step(value, step.op, step.right, result))
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


def build_tokenizer(recipe: EmbeddedConfig, scoring: ScoringTemplates) -> Any:
    """Train the tokenizer of a recipe on everything that its actor and judges will read."""
    settings = recipe.tokenizer
    corpus = build_corpus(recipe, scoring)
    return train_tokenizer(corpus, settings.vocab_size, settings.model_max_length)


def build_corpus(recipe: EmbeddedConfig, scoring: ScoringTemplates) -> list[str]:
    """Problems, clean and sloppy solutions, scoring prompts and verdicts, from the train split."""
    rng = derive_generator(recipe.data.seed, "corpus")
    stream = iterate_problems(
        "train", recipe.data.seed, recipe.data.difficulty, recipe.data.long_share
    )
    texts = list(phrases.FILLER) + list(phrases.PADDING)
    texts += [f"{role}\n" for role in ROLES] * 50  # the chat template's words
    for index, problem in zip(range(recipe.tokenizer.corpus_problems), stream, strict=False):
        response = sloppy_solution(rng, problem, recipe.tokenizer)
        texts += [problem.question, problem.solution, response, render_verdict(problem, response)]
        if index % 4 == 0:
            form: PromptForm = "full" if index % 8 == 0 else "compact"
            texts.append(scoring_prompt(problem.question, response, scoring, form))
    return texts

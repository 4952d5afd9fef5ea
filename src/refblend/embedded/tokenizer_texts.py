"""The training texts of the embedded tokenizer: everything that actor and judge will read."""

from typing import Any

from refblend.data.schema import ROLES
from refblend.data.tokenizer import train_tokenizer
from refblend.embedded import phrases
from refblend.embedded.demonstrations import sloppy_solution
from refblend.embedded.judge_format import render_verdict
from refblend.embedded.problems import iterate_problems
from refblend.embedded.recipe import EmbeddedConfig
from refblend.scoring.prompts import build_scoring_prompt
from refblend.scoring.templates import PromptForm, ScoringTemplates
from refblend.seeding import derive_generator


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
            prompt = build_scoring_prompt(problem.question, response, scoring, form)
            texts.append(prompt.text)
    return texts


def build_tokenizer(recipe: EmbeddedConfig, scoring: ScoringTemplates) -> Any:
    """Train the tokenizer of a recipe."""
    return train_tokenizer(
        build_corpus(recipe, scoring),
        recipe.tokenizer.vocab_size,
        recipe.tokenizer.model_max_length,
    )

"""The warm start of the embedded actor: a clean phase, then a short sloppy one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from refblend.data.tokenizer import encode_chat
from refblend.embedded.architecture import build_model, fingerprint_of, load_model, save_model
from refblend.embedded.demonstrations import sloppy_solution
from refblend.embedded.prepare import sum_problem, sum_rows
from refblend.embedded.problems import Problem, draw_problem
from refblend.embedded.recipe import EmbeddedConfig, PhaseRecipe
from refblend.embedded.sft import Example, TrainingResult, train
from refblend.seeding import derive_generator


def taught(
    tokenizer: Any,
    prompt_ids: list[int],
    answer: str,
    weigh: Callable[[list[int]], list[float]] = lambda ids: [1.0] * len(ids),
    n_shared: int = 0,
) -> Example:
    """A prompt with the answer that is learned; ``weigh`` gives the weights of its tokens."""
    answer_ids = tokenizer(answer, add_special_tokens=False)["input_ids"]
    weights = weigh(answer_ids)
    return Example(
        [*prompt_ids, *answer_ids, tokenizer.eos_token_id],
        [0.0] * len(prompt_ids) + weights + weights[-1:],
        n_shared,
    )


def training_problems(recipe: EmbeddedConfig) -> Callable[[np.random.Generator], Problem]:
    """Draws problems of the train split."""
    if recipe.pretrained is not None:
        problems = [sum_problem(row) for row in sum_rows(recipe)["train"]]
        return lambda rng: problems[int(rng.integers(len(problems)))]

    def draw(rng: np.random.Generator) -> Problem:
        long = bool(rng.random() < recipe.data.long_share)
        while True:
            problem = draw_problem(rng, recipe.data.difficulty, long)
            if problem.split == "train":
                return problem

    return draw


def demonstration_stream(
    recipe: EmbeddedConfig, tokenizer: Any, phase: str, render: Callable[[Any, Problem], str]
) -> Callable[[int], Example]:
    """Example ``i``: a problem of the train split with its demonstration, a function of ``i``."""
    draw = training_problems(recipe)

    def example(number: int) -> Example:
        rng = derive_generator(recipe.actor.seed, "actor", phase, number)
        problem = draw(rng)
        prompt = encode_chat(tokenizer, [{"role": "user", "content": problem.prompt}])
        return taught(tokenizer, prompt, render(rng, problem))

    return example


def train_actor(
    recipe: EmbeddedConfig, tokenizer: Any, clean_out: Path, out: Path
) -> tuple[TrainingResult, TrainingResult | None]:
    """Train both phases and save them in Hugging Face format; None for a phase not wanted."""
    actor = recipe.actor
    model = (
        load_model(recipe.pretrained.model)
        if recipe.pretrained is not None
        else build_model(recipe.architecture, tokenizer, actor.seed)
    )

    def run(phase: PhaseRecipe, name: str, render: Callable[[Any, Problem], str]) -> TrainingResult:
        stream = demonstration_stream(recipe, tokenizer, name, render)
        return train(model, stream, phase, f"actor {name}", recipe.bfloat16)[0]

    def save(path: Path, what: str, steps: int) -> None:
        made_from = fingerprint_of(recipe, tokenizer, what)
        facts = {"fingerprint": made_from, "parameters": model.num_parameters(), "steps": steps}
        save_model(path, model, tokenizer, facts)

    clean = run(actor.clean, "clean", lambda _, problem: problem.solution)
    save(clean_out, "actor_clean", actor.clean.steps)
    sloppy = None
    if actor.sloppy:
        sloppy = run(actor.sloppy, "sloppy", lambda rng, p: sloppy_solution(rng, p, actor))
    save(out, "actor", (actor.sloppy or actor.clean).steps)
    return clean, sloppy

"""The warm start of the embedded actor: a clean phase, then a short sloppy one."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from refblend.data.tokenizer import encode_chat
from refblend.embedded.architecture import (
    build_model,
    count_parameters,
    fingerprint_of,
    fingerprint_of_model,
    load_model,
    save_model,
)
from refblend.embedded.demonstrations import sloppy_solution
from refblend.embedded.problems import Problem, draw_problem
from refblend.embedded.recipe import EmbeddedConfig, PhaseRecipe
from refblend.embedded.sft import Example, Schedule, StateFile, TrainingResult, discard_state, train
from refblend.embedded.sums import sum_problem, sum_rows
from refblend.seeding import derive_generator

Render = Callable[[Any, Problem], str]


@dataclass(frozen=True)
class ActorResult:
    """Results of the two phases; None for one that was kept or is not wanted."""

    clean: TrainingResult | None
    sloppy: TrainingResult | None


def encode_example(
    tokenizer: Any, prompt: str, answer: str, weights: list[float] | None = None
) -> Example:
    """A one-turn conversation; the loss covers the answer's tokens and the end of the turn.

    ``weights`` gives each answer token its own weight; the end of turn gets the last one's.
    """
    prompt_ids = encode_chat(tokenizer, [{"role": "user", "content": prompt}])
    answer_ids = tokenizer(answer, add_special_tokens=False)["input_ids"]
    answer_weights = [1.0] * len(answer_ids) if weights is None else weights
    return Example(
        prompt_ids + answer_ids + [tokenizer.eos_token_id],
        [0.0] * len(prompt_ids) + answer_weights + answer_weights[-1:],
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
    recipe: EmbeddedConfig, tokenizer: Any, phase: str, render: Render
) -> Callable[[int], Example]:
    """Example ``i``: a problem of the train split with its demonstration, a function of ``i``."""
    draw = training_problems(recipe)

    def example(number: int) -> Example:
        rng = derive_generator(recipe.actor.seed, "actor", phase, number)
        problem = draw(rng)
        return encode_example(tokenizer, problem.prompt, render(rng, problem))

    return example


def train_actor(
    recipe: EmbeddedConfig, tokenizer: Any, clean_out: Path, out: Path, state_dir: Path
) -> ActorResult:
    """Train both phases and save them in Hugging Face format.

    A finished clean phase in ``clean_out`` made by the same recipe is reused, and an unfinished
    phase continues from its state in ``state_dir``.
    """
    actor = recipe.actor
    clean_mark = fingerprint_of(recipe, tokenizer, "actor_clean")
    clean_result = None
    if fingerprint_of_model(clean_out) == clean_mark:
        model = load_model(clean_out)
    else:
        model = (
            load_model(recipe.pretrained.model)
            if recipe.pretrained is not None
            else build_model(recipe.architecture, tokenizer, actor.seed)
        )
        stream = demonstration_stream(recipe, tokenizer, "clean", lambda _, p: p.solution)
        state = StateFile(state_dir / "actor_clean.pt", clean_mark)
        plan = _schedule(actor.clean, recipe.bfloat16)
        clean_result = _run_phase(model, tokenizer, stream, plan, state, clean_out, "actor clean")
    mark = fingerprint_of(recipe, tokenizer, "actor")
    if actor.sloppy is None:
        _save(model, tokenizer, out, mark, actor.clean.steps)
        return ActorResult(clean_result, None)

    def render(rng: Any, problem: Problem) -> str:
        return sloppy_solution(
            rng, problem, actor.terse_share, actor.wrong_step_probability, actor.filler_share
        )

    stream = demonstration_stream(recipe, tokenizer, "sloppy", render)
    state = StateFile(state_dir / "actor_sloppy.pt", mark)
    plan = _schedule(actor.sloppy, recipe.bfloat16)
    sloppy_result = _run_phase(model, tokenizer, stream, plan, state, out, "actor sloppy")
    return ActorResult(clean_result, sloppy_result)


def _run_phase(
    model: Any,
    tokenizer: Any,
    stream: Callable[[int], Example],
    schedule: Schedule,
    state: StateFile,
    out: Path,
    label: str,
) -> TrainingResult:
    result, _ = train(model, stream, schedule, tokenizer.pad_token_id, label, state)
    _save(model, tokenizer, out, state.fingerprint, schedule.last_step)
    discard_state(state.path)
    return result


def _schedule(phase: PhaseRecipe, bfloat16: bool) -> Schedule:
    return Schedule(
        phase.steps,
        phase.batch_size,
        phase.learning_rate,
        phase.warmup_steps,
        bfloat16=bfloat16,
    )


def _save(model: Any, tokenizer: Any, out: Path, fingerprint: str, steps: int) -> None:
    facts = {"fingerprint": fingerprint, "parameters": count_parameters(model), "steps": steps}
    save_model(out, model, tokenizer, facts)

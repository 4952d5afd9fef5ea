"""The rows of an embedded scale's four prompt files: our problems, or sums of reasoning-gym.

A recipe with a pretrained model takes sums. reasoning-gym's ``chain_sum`` gives an expression and
its value. Taken from left to right it is a chain of steps, so demonstrations, corrupted answers and
verdicts are made as for our own problems.
"""

import json

from refblend.data.gsm8k import INSTRUCTION
from refblend.data.reasoning_gym import make_splits, reasoning_gym
from refblend.data.schema import PromptRow
from refblend.embedded.problems import SPLITS, Difficulty, Problem, Split, Step, generate_problems
from refblend.embedded.recipe import DataRecipe, EmbeddedConfig

TASK = "chain_sum"


def problem_row(problem: Problem, index: int, split: Split) -> PromptRow:
    """A generated problem as a prompt row; the question alone is the prompt."""
    return PromptRow(
        index=index,
        data_source="refblend/sanity" if split == "sanity" else "refblend/arithmetic",
        messages=[{"role": "user", "content": problem.question}],
        question=problem.question,
        ground_truth=str(problem.answer),
        solution=problem.solution,
        extra={
            "split": split,
            "n_steps": len(problem.steps),
            "template": problem.key,
            "long": problem.long,
        },
    )


def split_problems(recipe: DataRecipe, split: Split) -> list[Problem]:
    """The problems of one file. The sanity set has only one-step problems and no long ones."""
    count, level = getattr(recipe, f"{split}_rows"), recipe.difficulty
    long_share = recipe.long_share
    if split == "sanity":
        level = Difficulty(**{**level.model_dump(), "step_weights": (1.0, 0.0, 0.0)})
        long_share = 0.0
    return generate_problems(split, count, recipe.seed, level, long_share)


def recipe_rows(recipe: EmbeddedConfig) -> dict[str, list[PromptRow]]:
    """The rows of every split: our problems, or the sums of a pretrained model."""
    if recipe.pretrained is not None:
        return sum_rows(recipe)
    return {
        split: [problem_row(p, i, split) for i, p in enumerate(split_problems(recipe.data, split))]
        for split in SPLITS
    }


def sum_rows(recipe: EmbeddedConfig) -> dict[str, list[PromptRow]]:
    """The rows of every split, those of sanity from the outside task; else DataError."""
    assert recipe.pretrained is not None, "the caller has looked"
    counts = {split: getattr(recipe.data, f"{split}_rows") for split in SPLITS}
    held_out = max(count for split, count in counts.items() if split != "train")
    task, seed, outside = recipe.pretrained.task, recipe.data.seed, recipe.pretrained.outside_task
    with reasoning_gym() as gym:
        rows = make_splits(gym, TASK, counts["train"], held_out, seed, task)
        rows["sanity"] = make_splits(gym, outside, 1, counts["sanity"], seed, {})["sanity"]
    return {split: rows[split][: counts[split]] for split in SPLITS}


def sum_problem(row: PromptRow) -> Problem:
    """The chain of additions and subtractions of a row of ``chain_sum``."""
    expression = json.loads(row.extra["entry"])["metadata"]["expression"]
    first, *rest = expression.split()
    steps: list[Step] = []
    value = int(first)
    for op, number in zip(rest[::2], map(int, rest[1::2]), strict=True):
        result = value + number if op == "+" else value - number
        steps.append(Step(value, op, number, result))
        value = result
    return Problem(row.question, tuple(steps), f"{TASK}:{expression}", False, INSTRUCTION)

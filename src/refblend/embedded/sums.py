"""Sums of reasoning-gym as problems with worked steps, for a recipe with a pretrained model.

reasoning-gym's ``chain_sum`` gives an expression and its value. Taken from left to right it is a
chain of steps, so demonstrations, corrupted answers and verdicts are made as for our own problems.
"""

import json

from refblend.data.reasoning_gym import INSTRUCTION, TaskRequest, make_splits, reasoning_gym
from refblend.data.schema import PromptRow
from refblend.embedded.problems import SPLITS, Problem, Step
from refblend.embedded.recipe import EmbeddedConfig

TASK = "chain_sum"


def sum_rows(recipe: EmbeddedConfig) -> dict[str, list[PromptRow]]:
    """The rows of every split, those of sanity from the outside task; else DataError."""
    assert recipe.pretrained is not None, "the caller has looked"
    counts = {split: getattr(recipe.data, f"{split}_rows") for split in SPLITS}
    held_out = max(count for split, count in counts.items() if split != "train")
    options, seed = recipe.pretrained.task, recipe.data.seed
    request = TaskRequest(TASK, counts["train"], held_out, seed, options)
    outside = TaskRequest(recipe.pretrained.outside_task, 1, counts["sanity"], seed, {})
    with reasoning_gym() as gym:
        rows = make_splits(gym, request)
        rows["sanity"] = make_splits(gym, outside)["sanity"]
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

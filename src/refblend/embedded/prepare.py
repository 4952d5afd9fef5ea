"""The four prompt files of an embedded scale."""

from refblend.data.schema import PromptRow
from refblend.embedded.problems import (
    DATA_SOURCE,
    SANITY_SOURCE,
    SPLITS,
    Difficulty,
    Problem,
    Split,
    generate_problems,
)
from refblend.embedded.recipe import DataRecipe, EmbeddedConfig
from refblend.embedded.sums import sum_rows


def problem_row(problem: Problem, index: int, split: Split) -> PromptRow:
    """A generated problem as a prompt row; the question alone is the prompt."""
    return PromptRow(
        index=index,
        data_source=SANITY_SOURCE if split == "sanity" else DATA_SOURCE,
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

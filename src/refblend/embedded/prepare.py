"""The four prompt files of an embedded scale."""

from pathlib import Path
from typing import TYPE_CHECKING

from refblend.data.schema import PromptRow, write_rows
from refblend.embedded.problems import (
    DATA_SOURCE,
    SANITY_SOURCE,
    SPLITS,
    Difficulty,
    Problem,
    Split,
    generate_problems,
)

if TYPE_CHECKING:
    from refblend.embedded.recipe import DataRecipe


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


def split_problems(recipe: "DataRecipe", split: Split) -> list[Problem]:
    """The problems of one file. The sanity set has only one-step problems and no long ones."""
    count, level, long_share = (
        getattr(recipe, f"{split}_rows"),
        recipe.difficulty,
        recipe.long_share,
    )
    if split == "sanity":
        level = Difficulty(**{**level.model_dump(), "step_weights": (1.0, 0.0, 0.0)})
        long_share = 0.0
    return generate_problems(split, count, recipe.seed, level, long_share)


def prepare_splits(recipe: "DataRecipe", out: Path) -> dict[str, int]:
    """Write ``<split>.parquet`` for every split to ``out``; return the numbers of rows."""
    counts: dict[str, int] = {}
    for split in SPLITS:
        problems = split_problems(recipe, split)
        rows = [problem_row(problem, index, split) for index, problem in enumerate(problems)]
        write_rows(out / f"{split}.parquet", rows)
        counts[split] = len(rows)
    return counts

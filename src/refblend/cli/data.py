"""``refblend data …``: write prompt files."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from refblend.cli.options import Panels, Recipe, example

if TYPE_CHECKING:
    from refblend.data.schema import PromptRow

app = typer.Typer(cls=Panels, help="Prepare prompt files in verl's schema.", no_args_is_help=True)


@app.command(epilog=example("data prepare --recipe params/embedded/smoke.yaml --out data/smoke"))
def prepare(recipe: Recipe, out: Annotated[Path, Option(help="Directory of the files.")]) -> None:
    """Generate train, validation, test and sanity files of a recipe's problems."""
    from refblend.embedded.prepare import recipe_rows
    from refblend.embedded.recipe import load_recipe

    _write_splits(out, recipe_rows(load_recipe(recipe)))


@app.command(epilog=example("data gsm8k --source downloads/gsm8k --out data/gpu"))
def gsm8k(
    out: Annotated[Path, Option(help="Directory of the four files.")],
    source: Annotated[
        str, Option(help="Folder with train and test (.jsonl or .parquet), or a hub name.")
    ] = "openai/gsm8k",
    validation: Annotated[int, Option(min=1, help="Validation rows, drawn from train.")] = 512,
    sanity: Annotated[int, Option(min=1, help="Sanity rows, drawn from train.")] = 64,
    seed: Annotated[int, Option(min=0, help="Seed of the draw.")] = 1,
) -> None:
    """Write disjoint train, validation, test and sanity files of GSM8K."""
    from refblend.data.gsm8k import load_split
    from refblend.data.splits import hold_out

    train, test = (load_split(source, split) for split in ("train", "test"))
    _write_splits(out, hold_out(train, test, validation, sanity, seed))


def _write_splits(out: Path, splits: Mapping[str, list["PromptRow"]]) -> None:
    from refblend.data.splits import write_splits

    write_splits(out, splits)
    typer.echo(", ".join(f"{name}: {len(rows)} rows" for name, rows in splits.items()))


@app.command("reasoning-gym", epilog=example("data reasoning-gym --task chain_sum --out data/sums"))
def reasoning_gym(
    task: Annotated[str, Option(help="Name of the task, e.g. chain_sum.")],
    out: Annotated[Path, Option(help="Directory of the four files.")],
    size: Annotated[int, Option(min=1, help="Rows of the train split.")] = 2000,
    held_out: Annotated[int, Option(min=1, help="Rows each of validation, test and sanity.")] = 256,
    seed: Annotated[int, Option(min=0, help="Seed of the problems.")] = 1,
    config: Annotated[list[str] | None, Option(help="Option of the task, key=value.")] = None,
    without: Annotated[list[Path] | None, Option(help="Leave out this file's questions.")] = None,
) -> None:
    """Write disjoint train, validation, test and sanity files of a reasoning-gym task.

    Train on them with
    `reward.custom_reward_function=refblend.rewards.reasoning_gym:compute_score`.
    """
    from refblend.config.loading import overridden
    from refblend.data import reasoning_gym as library
    from refblend.data.schema import read_rows

    options = overridden({}, config or [])
    known = {row.question for file in without or [] for row in read_rows(file)}
    with library.reasoning_gym() as gym:
        splits = library.make_splits(gym, task, size, held_out, seed, options, known)
    _write_splits(out, splits)

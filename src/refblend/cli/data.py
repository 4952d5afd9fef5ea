"""``refblend data …``: write prompt files."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Prepare prompt files in verl's schema.", no_args_is_help=True)

Recipe = Annotated[Path, typer.Option(help="Recipe file, e.g. params/embedded/cpu.yaml.")]


@app.command()
def prepare(
    recipe: Recipe, out: Annotated[Path, typer.Option(help="Directory of the files.")]
) -> None:
    """Generate train, validation, test and sanity files of word problems."""
    from refblend.embedded.prepare import prepare_splits
    from refblend.embedded.recipe import load_recipe

    counts = prepare_splits(load_recipe(recipe).data, out)
    typer.echo(", ".join(f"{name}: {count} rows" for name, count in counts.items()))


@app.command()
def gsm8k(
    split: Annotated[str, typer.Option(help="Name of the split, e.g. train or test.")],
    out: Annotated[Path, typer.Option(help="File to write, .parquet or .jsonl.")],
    file: Annotated[
        Path | None, typer.Option(help="Local parquet or jsonl with question and answer.")
    ] = None,
    dataset: Annotated[
        str, typer.Option(help="Without --file: a name or folder for `datasets`.")
    ] = "openai/gsm8k",
) -> None:
    """Convert GSM8K from a local file or through `datasets`."""
    from refblend.data.gsm8k import load_datasets, load_file
    from refblend.data.schema import write_rows

    rows = load_file(file, split) if file is not None else load_datasets(split, dataset)
    write_rows(out, rows)
    typer.echo(f"{out}: {len(rows)} rows")


@app.command("reasoning-gym")
def reasoning_gym(
    task: Annotated[str, typer.Option(help="Name of the task, e.g. chain_sum.")],
    out: Annotated[Path, typer.Option(help="Directory of the four files.")],
    size: Annotated[int, typer.Option(min=1, help="Rows of the train split.")] = 2000,
    held_out: Annotated[
        int, typer.Option(min=1, help="Rows each of validation, test and sanity.")
    ] = 256,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the problems.")] = 1,
    config: Annotated[
        list[str] | None, typer.Option(help="Option of the task, key=value; may be repeated.")
    ] = None,
) -> None:
    """Write disjoint train, validation, test and sanity files of a reasoning-gym task.

    Train on them with
    `reward.custom_reward_function=refblend.rewards.reasoning_gym:compute_score`.
    """
    from refblend.data.reasoning_gym import TaskRequest, make_splits, parse_options
    from refblend.data.reasoning_gym import reasoning_gym as start
    from refblend.data.schema import write_rows

    request = TaskRequest(task, size, held_out, seed, parse_options(config or []))
    with start() as gym:
        splits = make_splits(gym, request)
    for name, rows in splits.items():
        write_rows(out / f"{name}.parquet", rows)
    typer.echo(", ".join(f"{name}: {len(rows)} rows" for name, rows in splits.items()))

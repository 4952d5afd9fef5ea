"""``refblend runs …``: list runs, and free the space of those that were moved aside."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="List runs; delete those that were moved aside.", no_args_is_help=True)

Root = Annotated[Path, typer.Argument(help="Folder of the runs.")]


@app.command("list")
def list_runs(root: Root = Path("runs")) -> None:
    """Every run with its status and size; `aside` marks those moved aside for another run."""
    from refblend.trainer.run_listing import find_runs

    found = list(find_runs(root))
    for run in found:
        mark = "aside" if run.aside else ""
        typer.echo(f"{run.size / 1e6:10.1f} MB  {run.status:<10}  {mark:<5}  {run.path}")
    aside = [run for run in found if run.aside]
    typer.echo(
        f"{len(found)} runs, {sum(run.size for run in found) / 1e6:.1f} MB; moved aside: "
        f"{len(aside)}, {sum(run.size for run in aside) / 1e6:.1f} MB"
    )


@app.command()
def prune(
    root: Root = Path("runs"),
    yes: Annotated[
        bool, typer.Option("--yes", help="Delete them; otherwise only list them.")
    ] = False,
) -> None:
    """Delete the runs that were moved aside."""
    from refblend.trainer.run_listing import find_runs, remove_aside

    aside = [run for run in find_runs(root) if run.aside]
    for run in aside:
        if yes:
            remove_aside(run)
        typer.echo(f"{'deleted' if yes else 'would delete'} {run.path} ({run.size / 1e6:.1f} MB)")
    if aside and not yes:
        typer.echo("Nothing was deleted: call it again with --yes.")
    elif not aside:
        typer.echo(f"{root}: no run was moved aside")

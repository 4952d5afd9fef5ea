"""``refblend show``: look at a run."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

RunDirectory = Annotated[Path, typer.Argument(metavar="RUN", help="Directory of a run.")]


def show(
    run: RunDirectory,
    step: Annotated[
        int | None, typer.Option(min=0, help="Step of the responses; default: the last recorded.")
    ] = None,
    best: Annotated[int, typer.Option(min=0, help="Responses shown at each end.")] = 3,
    compare: Annotated[
        Path | None, typer.Option(help="Another run: settings and metrics side by side.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write one page for a browser instead.")] = None,
) -> None:
    """Show a run: metrics as sparklines, its best and worst responses with their scores."""
    from refblend.viewer.console import show_comparison, show_run
    from refblend.viewer.page import write_page
    from refblend.viewer.run import Run

    shown = Run.open(run)
    other = None if compare is None else Run.open(compare)
    console = Console()
    if html is not None:
        count, recorded = write_page(html, shown, other)
        left_out = "" if count == recorded else f" of {recorded}; the newest steps and the first"
        typer.echo(f"{html}: curves, and {count} responses{left_out}")
    elif other is not None:
        show_comparison(shown, other, console)
    else:
        show_run(shown, console, step, best)

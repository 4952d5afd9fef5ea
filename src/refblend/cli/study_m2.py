"""``refblend study m2``: tables, figures and report of the ablations."""

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command of M2 to ``refblend study``."""
    app.command()(m2)


def m2(
    collected: Annotated[Path, typer.Option(help="Folder written by `refblend study collect`.")],
    scale: Annotated[str, typer.Option(help="smoke, cpu or gpu.")],
    out: Annotated[Path, typer.Option(help="Folder to write.")],
    params: Annotated[Path, typer.Option(help="Root of the parameter files.")] = Path("params"),
    scoring: Annotated[
        Path | None, typer.Option(help="Folder of the target scoring; without it, no experiment D.")
    ] = None,
) -> None:
    """Write tables, figures and report of M2."""
    from refblend.study.report.m2.report import write_m2
    from refblend.study.report.m2.study import read_m2_study

    write_m2(read_m2_study(collected, params, scoring, scale), out)
    typer.echo(f"{out / 'report.md'}")

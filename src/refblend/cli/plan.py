"""``refblend plan``: the cost of a study."""

import math
from pathlib import Path
from typing import Annotated

import typer

from refblend.cli.options import Scale


def plan(
    experiments: Annotated[list[str], typer.Argument(help="Names, e.g. M1.")],
    scale: Scale,
    slots: Annotated[int, typer.Option(min=1, help="Cores, one per run, or GPUs.")],
) -> None:
    """Estimate the cost of a study from the finished runs of results/<scale>, the newest first."""
    from tabulate import tabulate

    from refblend.study.design.grid import build_grid
    from refblend.study.planning import costs

    found = Path("results").glob(f"{scale}/*/tables/resources.csv")
    tables = sorted(found, key=lambda path: path.stat().st_mtime_ns)  # the last one counts
    grid = build_grid(experiments, scale)
    gpus = costs.gpus_of(grid, scale)
    arms, totals = costs.plan_study(grid, costs.read_resources(tables), gpus, slots)
    typer.echo(tabulate(arms, headers="keys", floatfmt=".3g") + "\n")
    shown = {name: "–" if math.isnan(value) else f"{value:.4g}" for name, value in totals.items()}
    shown["measured in"] = ", ".join(map(str, tables))
    typer.echo(tabulate(shown.items(), disable_numparse=True, tablefmt="plain"))

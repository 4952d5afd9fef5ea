"""``refblend plan``: the cost of a study."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from refblend.cli.options import Scale, with_options

if TYPE_CHECKING:
    import pandas as pd

    from refblend.study.planning.costs import StudyPlan

UNITS = {
    "step_seconds": "s per step",
    "startup_seconds": "start-up s",
    "memory_gb": "GiB",
    "watts": "W",
}
"""Displayed costs of a run, and their headings."""


@dataclass(frozen=True, kw_only=True)
class GivenCosts:
    """Costs of arms without a measured run; None: not given."""

    step_seconds: Annotated[float | None, typer.Option(help="Seconds of a training step.")] = None
    startup_seconds: Annotated[
        float | None, typer.Option(help="Seconds of a run outside its training steps.")
    ] = None
    memory_gb: Annotated[float | None, typer.Option(help="Peak memory of a run in GiB.")] = None
    watts: Annotated[
        float | None, typer.Option(help="Mean power of a run; without it, no energy.")
    ] = None
    kg_co2e_per_kwh: Annotated[
        float | None, typer.Option(help="Carbon intensity; without it, no emissions.")
    ] = None


@with_options
def plan(
    experiments: Annotated[list[str], typer.Argument(help="Names, e.g. M1.")],
    scale: Scale,
    slots: Annotated[int, typer.Option(min=1, help="Cores, one per run, or GPUs.")],
    given: GivenCosts,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Training steps instead of the configuration's.")
    ] = None,
) -> None:
    """Estimate the cost of a study from the finished runs of results/<scale>, the newest first."""
    from refblend.study.design.grid import build_grid
    from refblend.study.planning import costs

    found = Path("results").glob(f"{scale}/*/tables/resources.csv")
    tables = sorted(found, key=lambda path: path.stat().st_mtime_ns)  # the last one counts
    measured = costs.measured_costs(costs.read_resources(tables))
    grid = build_grid(experiments, scale)
    stated = {name: value for name, value in vars(given).items() if value is not None}
    planned = costs.plan_study(
        grid,
        costs.planned_runs(grid, scale, "params", steps),
        costs.arm_costs(list(dict.fromkeys(grid["arm"])), measured, stated),
        slots,
    )
    _show(planned, [str(path) for path in tables])


def _show(planned: "StudyPlan", sources: list[str]) -> None:
    from tabulate import tabulate

    def cost(arm: "pd.Series", name: str) -> str:
        return _known(arm[name], "*" if name in arm.given else "", ".4g")

    rows = [
        [
            *(arm.name, arm.runs, arm.steps),
            *(cost(arm, name) for name in UNITS),
            *(f"{arm.hours_per_run:.3g}", f"{arm.measured_runs} runs"),
        ]
        for _, arm in planned.arms.iterrows()
    ]
    heads = ["arm", "runs", "steps", *UNITS.values(), "h per run", "measured in"]
    typer.echo(tabulate(rows, heads, disable_numparse=True))
    typer.echo("* given, not measured. Start-up: all of a run outside its training steps.\n")
    totals = {
        "runs": f"{planned.runs}, {planned.places} side by side",
        "run hours": f"{planned.run_hours:.3g}",
        "GPU hours": _known(planned.gpu_hours, " h"),
        "makespan": f"{planned.makespan_hours:.3g} h",
        "peak memory": f"{planned.peak_memory_gb:.3g} GiB",
        "energy": _known(planned.energy_kwh, " kWh"),
        "emissions": _known(planned.kg_co2e, " kg CO2e"),
        "measured in": ", ".join(sources) or "nothing: all costs are given",
    }
    typer.echo(tabulate(totals.items(), disable_numparse=True, tablefmt="plain"))


def _known(value: float | None, unit: str, form: str = ".3g") -> str:
    return "–" if value is None or math.isnan(value) else f"{value:{form}}{unit}"

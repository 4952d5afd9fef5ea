"""``refblend plan``: what a study will cost, from measured costs of runs.

With ``--nodes``: one step on a cluster, predicted from measured stage costs.
"""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refblend.cli.options import with_options
from refblend.errors import StudyError
from refblend.study.design import names
from refblend.study.planning.step_model import Network

if TYPE_CHECKING:
    from refblend.study.planning.plan import StudyPlan
    from refblend.study.planning.step_model import StepCosts


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A cluster for which one step is predicted."""

    nodes: Annotated[
        list[int] | None,
        typer.Option(
            help="Predict a step on so many nodes instead of planning a study; may be repeated."
        ),
    ] = None
    gpus_per_node: Annotated[
        int | None,
        typer.Option(help="Devices of a node, each as fast as what a measured process had."),
    ] = None
    measured_run: Annotated[
        list[Path] | None,
        typer.Option(
            "--from",
            help="Run directory whose stages were timed with scoring.overlap=false; a second one "
            "with half the batch tells fixed times. Or a result of bench_planning or bench_step.",
        ),
    ] = None
    prompts: Annotated[
        int | None, typer.Option(min=1, help="Size of the batch; default: the measured one.")
    ] = None
    weights_gb: Annotated[
        float | None, typer.Option(min=0, help="Weights to push; default: counted in the model.")
    ] = None
    node_gb_per_s: Annotated[
        float | None,
        typer.Option(
            min=0.001, help=f"Assumed between the devices of a node [{Network.inside:g}]."
        ),
    ] = None
    network_gb_per_s: Annotated[
        float | None,
        typer.Option(min=0.001, help=f"Assumed between nodes [{Network.between:g}]."),
    ] = None


def show_step_plan(cluster: Cluster, params: Path | None, as_json: bool) -> None:
    """Print the best layout of every kind on each number of nodes."""
    from tabulate import tabulate

    from refblend.study.planning.step_costs import read_costs
    from refblend.study.planning.step_plan import plan_step, table_rows

    if cluster.gpus_per_node is None:
        raise StudyError("--gpus-per-node is missing", "Give the devices of a node.")
    costs = read_costs(cluster.measured_run or [], cluster.weights_gb, params)
    measured = costs.prompts
    costs = replace(costs, prompts=cluster.prompts or measured)
    given = {"inside": cluster.node_gb_per_s, "between": cluster.network_gb_per_s}
    net = Network(**{name: value for name, value in given.items() if value is not None})
    plans = [
        plan
        for nodes in cluster.nodes or ()
        for plan in plan_step(costs, nodes, cluster.gpus_per_node, net)
    ]
    if as_json:
        document = {"costs": asdict(costs), "network": asdict(net)}
        typer.echo(json.dumps(document | {"plans": [asdict(plan) for plan in plans]}, indent=2))
        return
    typer.echo(tabulate(table_rows(plans), headers="keys", tablefmt="github"))
    told = _told(costs, net, measured)
    typer.echo("\n".join(["", "* the best on these nodes. All times are predicted.", *told]))


def _told(costs: "StepCosts", net: "Network", measured: int) -> list[str]:
    """What is measured, with batches of so many prompts, and what is assumed."""
    extrapolated = "" if costs.prompts == measured else "extrapolated to "
    stages = ", ".join(
        f"{name} {cost.seconds(costs.prompts):.3g} s (fixed {cost.fixed:.3g} s)"
        for name, cost in costs.stages.items()
    )
    driver = costs.driver.seconds(costs.prompts)
    return [
        f"Measured, one process, {extrapolated}{costs.prompts} prompts of {costs.responses} "
        f"responses: {stages}, driver {driver:.3g} s, push to an engine of the same node "
        f"{costs.push:.3g} s.",
        f"Assumed: {net.inside:g} GB/s between the devices of a node and {net.between:g} GB/s "
        f"between nodes for {costs.weights_gb:.3g} GB of weights, once to each node; parameters "
        "sharded inside nodes and replicated across; models fit wherever they share a device.",
    ]


UNITS = {
    "step_seconds": "s per step",
    "startup_seconds": "start-up s",
    "memory_gb": "GiB",
    "watts": "W",
}
"""Displayed costs of a run, and their headings."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Where the study would run."""

    slots: Annotated[int | None, typer.Option(help="Cores, one per run, or GPUs.")] = None
    gpus_per_run: Annotated[
        int | None, typer.Option(help="GPUs that a run needs; scale gpu only.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class GivenCosts:
    """What is given instead of measured or configured; None: as measured or configured."""

    steps: Annotated[
        int | None, typer.Option(min=1, help="Training steps instead of the configuration's.")
    ] = None
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


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Where parameters and measured costs are read."""

    resources: Annotated[
        list[Path] | None,
        typer.Option(
            help="Table of finished runs, may be given several times; where they differ, the last "
            "one counts. Default: all of results/<scale>, where the newest counts."
        ),
    ] = None
    measured: Annotated[bool, typer.Option(help="Use the tables of finished runs.")] = True
    params: Annotated[Path | None, typer.Option(help="Root of the parameter files [params].")] = (
        None
    )
    results: Annotated[Path | None, typer.Option(help="Root of the results [results].")] = None

    def given(self) -> dict[str, Any]:
        """What is given of where measured costs are read, by option."""
        not_measured = None if self.measured else True
        return {"resources": self.resources, "results": self.results, "no_measured": not_measured}

    def check(self) -> None:
        """Refuse tables of which none would be read.

        Raises:
            StudyError: they contradict one another.
        """
        given = [name for name, value in self.given().items() if value is not None]
        if len(given) > 1:
            raise StudyError(
                f"{_options(given)} contradict one another: measured costs are read in the tables "
                "of --resources, in those below --results, or not at all (--no-measured)",
                "Give one of them.",
            )

    def tables(self, scale: str) -> list[Path]:
        """Tables of finished runs, the one that counts last."""
        from refblend.study.planning.costs import newest_last

        if not self.measured:
            return []
        found = (self.results or Path("results")).glob(f"{scale}/*/tables/resources.csv")
        return self.resources or newest_last(found)


@with_options
def plan(
    machine: Machine,
    given: GivenCosts,
    sources: Sources,
    cluster: Cluster,
    experiments: Annotated[list[str] | None, typer.Argument(help="Names, e.g. M1.")] = None,
    scale: Annotated[names.Scale | None, typer.Option(help="Scale of the study.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Estimate the cost of a study, or of a step on a cluster, from measured costs."""
    from refblend.study.design.grid import build_grid
    from refblend.study.planning import costs
    from refblend.study.planning.plan import check_gpus, plan_study, planned_steps

    of_a_study = {"EXPERIMENTS": experiments, "scale": scale} | asdict(machine) | asdict(given)
    if cluster.nodes:
        _refuse(of_a_study | sources.given(), "--nodes predicts a step, not a study")
        show_step_plan(cluster, sources.params, as_json)
        return
    _refuse(asdict(cluster), "a study is planned without --nodes")
    sources.check()
    needed = {"EXPERIMENTS": experiments, "--scale": scale, "--slots": machine.slots}
    if not experiments or scale is None or machine.slots is None:
        missing = ", ".join(name for name, value in needed.items() if value in (None, []))
        raise StudyError(
            f"missing: {missing}",
            "Give all of them for a study, or --nodes and --from for a step on a cluster.",
        )
    check_gpus(scale, machine.gpus_per_run)
    tables, params = sources.tables(scale), sources.params or Path("params")
    runs, notes = costs.read_resources(tables)
    known = costs.measured_costs(runs)
    stated = asdict(given)
    steps = stated.pop("steps")
    grid = build_grid(experiments, scale, params)
    planned = plan_study(
        grid,
        planned_steps(grid, scale, params, steps),
        costs.arm_costs(list(dict.fromkeys(grid["arm"])), known, costs.given_costs(**stated)),
        machine.slots,
        machine.gpus_per_run,
        {arm: count for arm, (count, _) in known.items()},
    )
    read = [str(path) for path in tables]
    if as_json:
        document = {"scale": scale, "resources": read, "notes": notes} | asdict(planned)
        typer.echo(json.dumps(document, indent=2))
    else:
        _show(planned, read, notes)


def _refuse(options: dict[str, Any], reason: str) -> None:
    """Refuse options that would be ignored."""
    stray = [name for name, value in options.items() if value not in (None, [])]
    if stray:
        raise StudyError(reason, f"Leave out {_options(stray)}.")


def _options(names: list[str]) -> str:
    """Options as they are written on the command line; arguments are in capitals."""
    written = {"measured_run": "from"}
    return ", ".join(
        name if name.isupper() else f"--{written.get(name, name).replace('_', '-')}"
        for name in names
    )


def _show(planned: "StudyPlan", sources: list[str], notes: list[str]) -> None:
    """Two tables: costs of a run by arm, and the study's totals."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    names = ("arm", "runs", "steps", *UNITS.values(), "h per run", "measured in")
    costs = Table(*names, box=box.SIMPLE, padding=(0, 1, 0, 0))
    for arm in planned.arms:
        known = [arm.costs.get(name) for name in UNITS]
        cells = [f"{c.value:.4g}" + "*" * (c.origin == "given") if c else "–" for c in known]
        counts = [arm.arm, str(arm.runs), str(arm.steps)]
        costs.add_row(*counts, *cells, f"{arm.hours_per_run:.3g}", f"{arm.measured_runs} runs")
    costs.caption = "* given, not measured. Start-up: all of a run outside its training steps."
    totals = Table("study", "", show_header=False, box=box.SIMPLE)
    for name, value in {
        "runs": f"{planned.runs}, {planned.places} side by side",
        "run hours": f"{planned.run_hours:.3g}",
        "GPU hours": "–" if planned.gpu_hours is None else f"{planned.gpu_hours:.3g}",
        "makespan": f"{planned.makespan_hours:.3g} h; none is below {planned.shortest_hours:.3g} h",
        "places busy": f"{planned.busy_share:.0%}",
        "peak memory": f"{planned.peak_memory_gb:.3g} GiB",
        "energy": _known(planned.energy_kwh, "kWh"),
        "emissions": _known(planned.kg_co2e, "kg CO2e"),
        "measured in": ", ".join(sources) or "nothing: all costs are given",
    }.items():
        totals.add_row(name, value)
    for note in notes:
        totals.add_row("note", note)
    console = Console()
    console.print(costs)
    console.print(totals)


def _known(value: float | None, unit: str) -> str:
    return "unknown" if value is None else f"{value:.3g} {unit}"

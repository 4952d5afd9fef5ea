"""``refblend plan --nodes``: one step on a cluster, predicted from measured stage costs."""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from refblend.errors import StudyError

if TYPE_CHECKING:
    from refblend.study.planning.step_model import Network, StepCosts


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
        float, typer.Option(min=0.001, help="Assumed between the devices of a node.")
    ] = 100.0
    network_gb_per_s: Annotated[float, typer.Option(min=0.001, help="Assumed between nodes.")] = (
        12.5
    )


def show_step_plan(cluster: Cluster, as_json: bool) -> None:
    """Print the best layout of every kind on each number of nodes."""
    from tabulate import tabulate

    from refblend.study.planning.step_costs import read_costs
    from refblend.study.planning.step_model import Network
    from refblend.study.planning.step_plan import plan_step, table_rows

    if cluster.gpus_per_node is None:
        raise StudyError("--gpus-per-node is missing", "Give the devices of a node.")
    costs = read_costs(cluster.measured_run or [], cluster.weights_gb)
    measured = costs.prompts
    costs = replace(costs, prompts=cluster.prompts or measured)
    net = Network(inside=cluster.node_gb_per_s, between=cluster.network_gb_per_s)
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

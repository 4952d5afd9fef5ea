"""``refblend show``, ``refblend evaluate`` and ``refblend runs …``: runs that are there."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from typer import Argument, Option

from refblend import runtime
from refblend.cli.options import Panels, example
from refblend.files import write_json
from refblend.tables import check_results


def show(
    run: Annotated[Path, Argument(metavar="RUN", help="Directory of a run.")],
    step: Annotated[
        int | None, Option(min=0, help="Step of the responses; default: the last.")
    ] = None,
    best: Annotated[int, Option(min=0, help="Responses shown at each end.")] = 3,
    compare: Annotated[Path | None, Option(help="Another run, shown side by side.")] = None,
    html: Annotated[Path | None, Option(help="Write one page for a browser instead.")] = None,
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


def evaluate(
    runs: Annotated[list[Path], Argument(help="Run directories, e.g. all seeds of an arm.")],
    data: Annotated[Path, Option(help="Prompt file, e.g. data/cpu/test.parquet.")],
    out: Annotated[Path | None, Option(help="File for all reports together.")] = None,
) -> None:
    """Test the final actors of runs with the engine of training; each run gets its test.json."""
    check_results([data], [out])
    runtime.configure_process()
    from refblend.study.runs.evaluate import evaluate_runs
    from refblend.study.runs.run_files import TEST_NAME

    reports = {}
    for run, report in evaluate_runs(runs, data):
        write_json(run / TEST_NAME, report)
        told = f"{report['status']}, nothing to measure"
        if "greedy" in report:
            sampled = f", {report['sampled']:.1%} sampled" if "sampled" in report else ""
            told = f"{report['greedy']:.1%} right greedily{sampled}, {report['problems']} problems"
        typer.echo(f"{run / TEST_NAME}: {told}")
        reports[str(run)] = report
    if out:
        write_json(out, reports)


app = typer.Typer(cls=Panels, help="List, prune and pack runs.", no_args_is_help=True)

Root = Annotated[Path, Argument(help="Folder of the runs.")]


@app.command("list", epilog=example("runs list runs"))
def list_runs(root: Root = Path("runs")) -> None:
    """Every run with its status and size; `aside` marks those moved aside for another run."""
    from refblend.trainer.run_directory import find_runs

    found = list(find_runs(root))
    for run in found:
        mark = "aside" if run.aside else ""
        why = f"  ({run.reason})" if run.reason else ""
        typer.echo(f"{run.size / 1e6:10.1f} MB  {run.status:<10}  {mark:<5}  {run.path}{why}")
    aside = [run for run in found if run.aside]
    typer.echo(
        f"{len(found)} runs, {sum(run.size for run in found) / 1e6:.1f} MB; moved aside: "
        f"{len(aside)}, {sum(run.size for run in aside) / 1e6:.1f} MB"
    )


@app.command(epilog=example("runs prune runs --yes"))
def prune(
    root: Root = Path("runs"),
    yes: Annotated[bool, Option("--yes", help="Delete them; otherwise only list them.")] = False,
) -> None:
    """Delete the runs that were moved aside."""
    from refblend.trainer.run_directory import find_runs, remove_aside

    aside = [run for run in find_runs(root) if run.aside]
    for run in aside:
        if yes:
            remove_aside(run)
        typer.echo(f"{'deleted' if yes else 'would delete'} {run.path} ({run.size / 1e6:.1f} MB)")
    if aside and not yes:
        typer.echo("Nothing was deleted: call it again with --yes.")
    elif not aside:
        typer.echo(f"{root}: no run was moved aside")


@app.command(epilog=example("runs pack done.tar.xz runs/smoke"))
def pack(
    target: Annotated[Path, Argument(metavar="FILE", help="File to write, .tar.xz.")],
    root: Root = Path("runs"),
) -> None:
    """Pack finished runs without their checkpoints; `tar` unpacks them."""
    from refblend.study.runs.pack import pack_runs

    packed = pack_runs(root, target)
    typer.echo(f"{target}: {len(packed)} runs, {target.stat().st_size / 1e6:.1f} MB")

"""``refblend study …``: the steps of the workflow, each usable by hand."""

from pathlib import Path
from typing import Annotated

import typer

from refblend.cli import study_power, study_recommend, study_report
from refblend.cli.help import Panels

app = typer.Typer(
    cls=Panels,
    help="Derive the grid, collect runs, write tables, figures and reports.",
    no_args_is_help=True,
)
study_report.register(app)
study_recommend.register(app)
app.command()(study_power.power)

Folder = Annotated[Path, typer.Option(help="Folder written by `refblend study collect`.")]
Out = Annotated[Path, typer.Option(help="File or folder to write.")]
Scale = Annotated[str, typer.Option(help="smoke, cpu, smollm or gpu.")]


@app.command()
def grid(
    experiments: Annotated[list[str], typer.Argument(help="Names, e.g. M1.")],
    scale: Scale,
    out: Out,
    params: Annotated[Path, typer.Option(help="Root of the parameter files.")] = Path("params"),
) -> None:
    """Derive grid.tsv from params/study and check every arm's configuration."""
    from refblend.study.design.grid import build_grid, unique_runs, write_grid

    frame = build_grid(experiments, scale, params)
    write_grid(frame, out)
    typer.echo(f"{out}: {len(frame)} rows, {len(unique_runs(frame))} runs")


@app.command()
def schemas(out: Out = Path("workflow/schemas")) -> None:
    """Write the JSON schemas that the workflow validates against."""
    from refblend.files import write_json
    from refblend.study.design.workflow import json_schemas

    for name, schema in json_schemas().items():
        write_json(out / name, schema)
        typer.echo(str(out / name))


@app.command()
def fail(
    runs: Annotated[list[Path], typer.Argument(help="Run directories of the job.")],
    status: Annotated[int, typer.Option(help="Exit status of the training.")],
    log: Annotated[Path | None, typer.Option(help="Log whose last line is the reason.")] = None,
) -> None:
    """Record a job's unfinished runs as failed; pass on a signal's status, so that they resume."""
    from refblend.study.runs.checks import SIGNALLED, record_failure

    if status >= SIGNALLED:
        raise typer.Exit(status)
    for run in record_failure(runs, status, log):
        typer.echo(f"{run}: training ended with status {status}; recorded as failed")


@app.command()
def mark(
    runs: Annotated[list[Path], typer.Argument(help="Run directories of the job.")], out: Out
) -> None:
    """Write a training job's marker: status and identity of every seed."""
    from refblend.files import write_json
    from refblend.study.runs.checks import block_record

    write_json(out, block_record(runs))


@app.command()
def collect(
    grid: Annotated[Path, typer.Option(help="grid.tsv.")],
    scale: Scale,
    out: Out,
    experiments: Annotated[list[str] | None, typer.Argument(help="Names; none: all.")] = None,
    root: Annotated[Path, typer.Option(help="Folder of all runs.")] = Path("runs"),
) -> None:
    """Read the runs of experiments of a grid into tidy frames."""
    from refblend.study.design.grid import read_grid, select
    from refblend.study.runs.collect import collect as collect_runs
    from refblend.study.runs.collect import write_collected

    frame = read_grid(grid)
    collected = collect_runs(select(frame, experiments) if experiments else frame, scale, root)
    write_collected(collected, out)
    counts = collected.runs.status.value_counts()
    typer.echo(f"{out}: " + ", ".join(f"{count} {name}" for name, count in counts.items()))


@app.command()
def check(
    collected: Folder,
    out: Out,
    tolerated: Annotated[
        list[str] | None, typer.Argument(help="kind=number, e.g. overlength=0.")
    ] = None,
) -> None:
    """Fail if a run did not finish or incidents exceed the tolerated number."""
    from refblend.files import write_json
    from refblend.study.runs.checks import check_milestone
    from refblend.study.runs.collect import read_collected

    limits = {kind: int(limit) for kind, _, limit in (t.partition("=") for t in tolerated or [])}
    record = check_milestone(read_collected(collected), limits)
    write_json(out, record)
    typer.echo(f"all {record['runs']} runs finished; incidents {record['incidents']}")

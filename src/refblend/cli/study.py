"""``refblend study …``: the steps of the workflow, each usable by hand."""

from pathlib import Path
from typing import Annotated

import typer

from refblend.cli import study_m2 as cli_m2
from refblend.cli import study_m3 as cli_m3

app = typer.Typer(
    help="Derive the grid, collect runs, write tables, figures and reports.", no_args_is_help=True
)
cli_m2.register(app)
cli_m3.register(app)

Folder = Annotated[Path, typer.Option(help="Folder written by `refblend study collect`.")]
Experiment = Annotated[Path, typer.Option(help="Experiment file, e.g. params/study/M1.yaml.")]
Out = Annotated[Path, typer.Option(help="File or folder to write.")]
Scale = Annotated[str, typer.Option(help="smoke, cpu or gpu.")]
Quality = Annotated[
    list[Path] | None, typer.Argument(help="Quality reports of the embedded models.")
]


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
    from refblend.study.design.spec import json_schemas

    for name, schema in json_schemas().items():
        write_json(out / name, schema)
        typer.echo(str(out / name))


@app.command()
def fail(
    runs: Annotated[list[Path], typer.Argument(help="Run directories of the job.")],
    status: Annotated[int, typer.Option(help="Exit status of the training.")],
    log: Annotated[Path | None, typer.Option(help="Log whose last line is the reason.")] = None,
) -> None:
    """Record a job's unfinished runs as failed; pass on a signal's status, to be resumed."""
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
def tables(collected: Folder, experiment: Experiment, out: Out, quality: Quality = None) -> None:
    """Write the tables of M1 as CSV and Markdown."""
    from refblend.study.design.spec import load_experiment
    from refblend.study.report.m1.tables import m1_tables, write_table
    from refblend.study.runs.collect import read_collected
    from refblend.study.runs.model_quality import read_quality

    baseline = load_experiment(experiment).baseline
    frames = m1_tables(read_collected(collected), baseline, read_quality(quality or []))
    for name, frame in frames.items():
        write_table(frame, name, out)


@app.command()
def figures(collected: Folder, experiment: Experiment, out: Out, quality: Quality = None) -> None:
    """Draw the figures of M1 as SVG and PNG."""
    from refblend.study.design.spec import load_experiment
    from refblend.study.report.m1.figures import FigureData, write_figures
    from refblend.study.runs.collect import read_collected
    from refblend.study.runs.model_quality import read_quality

    baseline = load_experiment(experiment).baseline
    write_figures(FigureData(read_collected(collected), baseline, read_quality(quality or [])), out)


@app.command()
def report(
    collected: Folder,
    experiment: Experiment,
    scale: Scale,
    grid: Annotated[Path, typer.Option(help="grid.tsv.")],
    out: Annotated[Path, typer.Option(help="Folder that holds tables and figures.")],
) -> None:
    """Write the report of M1 beside its tables and figures."""
    from refblend.study.design.spec import load_experiment
    from refblend.study.report.m1.report import write_m1_report
    from refblend.study.runs.collect import read_collected

    write_m1_report(read_collected(collected), load_experiment(experiment), scale, grid, out)
    typer.echo(f"{out / 'report.md'}")


@app.command()
def scoring(
    robustness: Annotated[Path, typer.Option(help="Report of `refblend judge robustness`.")],
    attacks: Annotated[Path, typer.Option(help="Report of `refblend judge attacks`.")],
    scale: Scale,
    out: Out,
    quality: Annotated[list[Path], typer.Argument(help="Reports of `refblend judge quality`.")],
) -> None:
    """Write tables, figures and report of what was measured of the judges."""
    from refblend.study.report.scoring.report import write_scoring_report
    from refblend.study.report.scoring.tables import read_scoring

    write_scoring_report(read_scoring(robustness, attacks, quality), scale, out)
    typer.echo(f"{out / 'report.md'}")


@app.command()
def check(
    collected: Folder,
    out: Out,
    tolerated: Annotated[
        list[str] | None, typer.Argument(help="kind=number, e.g. overlength=0.")
    ] = None,
) -> None:
    """Fail when a run did not finish or incidents exceed what is tolerated."""
    from refblend.files import write_json
    from refblend.study.runs.checks import check_milestone
    from refblend.study.runs.collect import read_collected

    limits = {kind: int(limit) for kind, _, limit in (t.partition("=") for t in tolerated or [])}
    record = check_milestone(read_collected(collected), limits)
    write_json(out, record)
    typer.echo(f"all {record['runs']} runs finished; incidents {record['incidents']}")

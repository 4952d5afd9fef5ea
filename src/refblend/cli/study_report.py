"""``refblend study tables | figure | report | publish | archive | verdicts | redraw``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from refblend.cli.options import Scale
from refblend.study.design.names import MILESTONES, REPORTS, ReportName

if TYPE_CHECKING:
    from refblend.study.report.registry import Inputs, Report

Milestone = Annotated[ReportName, typer.Option(help="Of which the report is.")]
Experiments = Annotated[
    list[str] | None, typer.Argument(help="Names; none: those of the milestone in params/study.")
]
Roots = Annotated[
    tuple[Path, Path, Path, Path],
    typer.Option(help="Folders of runs, models, results and parameter files."),
]
Out = Annotated[
    Path | None, typer.Option(help="Folder to write; default: results/<scale>/<milestone>.")
]
ROOTS = (Path("runs"), Path("models"), Path("results"), Path("params"))


def register(app: typer.Typer) -> None:
    """Add the commands to ``refblend study``."""
    for command in (tables, figure, report, publish, archive, verdicts, redraw):
        app.command()(command)


def tables(
    milestone: Milestone,
    scale: Scale,
    out: Out = None,
    roots: Roots = ROOTS,
    experiments: Experiments = None,
) -> None:
    """Write all tables of a milestone, and the data of its plots."""
    from refblend.study.report.engine import write_tables

    made, inputs = _opened(milestone, scale, roots, experiments)
    folder = out or inputs.results / milestone
    write_tables(made, inputs, folder)
    typer.echo(str(folder / "tables"))


def figure(
    milestone: Milestone,
    scale: Scale,
    out: Annotated[Path, typer.Option(help="File to write: <figure>.svg, .png or .pdf.")],
    roots: Roots = ROOTS,
    experiments: Experiments = None,
) -> None:
    """Draw the figure named by the file; the tables must have been written."""
    from refblend.study.report.engine import draw

    draw(*_opened(milestone, scale, roots, experiments), out)


def report(
    milestone: Milestone,
    scale: Scale,
    out: Out = None,
    roots: Roots = ROOTS,
    experiments: Experiments = None,
) -> None:
    """Write report and headline numbers next to the tables and figures."""
    from refblend.study.report.engine import write_report

    made, inputs = _opened(milestone, scale, roots, experiments)
    folder = out or inputs.results / milestone
    write_report(made, inputs, folder)
    typer.echo(str(folder / "report.md"))


def publish(
    milestone: Milestone,
    scale: Scale,
    built: Annotated[Path, typer.Option(help="Folder with the tables, figures and report.")],
    roots: Roots = ROOTS,
    experiments: Experiments = None,
) -> None:
    """Copy a built report to results/<scale>/<milestone>, unless that differs in times only."""
    from refblend.study.report import publish as publishing

    made, inputs = _opened(milestone, scale, roots, experiments)
    changed = publishing.publish(made, inputs, built)
    told = "published" if changed else "nothing new but times; the published report stays"
    typer.echo(f"{inputs.results / milestone / 'report.md'}: {told}")


def archive(scale: Scale, roots: Roots = ROOTS) -> None:
    """Gather every number of every run of the grid in results/<scale>, for `redraw`."""
    from refblend.study.design.grid import read_grid
    from refblend.study.runs.archive import copy_quality, has_quality, write_archive
    from refblend.study.runs.collect import collect

    runs, models, results, _ = roots
    out = results / scale
    collected = collect(read_grid(out / "grid.tsv"), scale, runs)
    if write_archive(collected, out) or not has_quality(models / scale, out):
        circumstances = runs / scale / "_collected" / "scoring" / "circumstances"
        copy_quality(models / scale, circumstances, out)
    typer.echo(f"{out / 'runs.parquet'}: {len(collected.runs)} runs")


def verdicts(scale: Scale, roots: Roots = ROOTS) -> None:
    """Write verdicts.csv: every declared contrast as better, worse, equivalent or undecided."""
    from refblend.study.report.verdicts import write_verdicts

    _, _, results, params = roots
    typer.echo(str(write_verdicts(scale, results / scale, params)))


def redraw(
    scale: Scale,
    out: Annotated[
        Path | None, typer.Option(help="Folder to write; none: results, where they differ.")
    ] = None,
    roots: Roots = ROOTS,
) -> None:
    """Write all tables, figures and reports anew from the archive, without any run or model."""
    from refblend.progress import step_progress
    from refblend.study.report.publish import redraw_reports

    _, _, results, params = roots
    with step_progress("reports", 0, len(REPORTS) + 1) as show:
        for done, written in enumerate(redraw_reports(scale, results / scale, params, out), 1):
            show(done, str(written))


def _opened(
    milestone: str, scale: str, roots: tuple[Path, Path, Path, Path], experiments: list[str] | None
) -> tuple["Report", "Inputs"]:
    from refblend.errors import StudyError
    from refblend.study.design.spec import experiments_of
    from refblend.study.report.registry import Inputs, load_report

    runs, models, results, params = roots
    study = tuple(experiments or experiments_of(milestone, params, scale))
    if milestone in MILESTONES and not study:
        raise StudyError(
            f"no experiment of milestone {milestone} has seeds at --scale {scale}",
            f"Name another --scale, or add seeds.{scale} to one of them in {params / 'study'}.",
        )
    inputs = Inputs(
        scale=scale,
        study=study,
        collected=runs / scale / "_collected" / milestone,
        models=models / scale,
        results=results / scale,
        params=params,
    )
    return load_report(milestone), inputs

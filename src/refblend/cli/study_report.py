"""``refblend study report | archive | verdicts | redraw``."""

from pathlib import Path
from typing import Annotated

import typer

from refblend.cli.options import Scale

Name = Annotated[
    str, typer.Argument(help="A milestone (m1, m2, m3, r), an experiment, or scoring.")
]
Names = Annotated[list[str] | None, typer.Argument(help="As for `report`; none: all reports.")]
Roots = Annotated[
    tuple[Path, Path, Path, Path],
    typer.Option(help="Folders of runs, models, results and parameter files."),
]
Out = Annotated[Path | None, typer.Option(help="Folder to write; default: the results.")]
ROOTS = (Path("runs"), Path("models"), Path("results"), Path("params"))


def register(app: typer.Typer) -> None:
    """Add the commands to ``refblend study``."""
    for command in (report, archive, verdicts, redraw):
        app.command()(command)


def report(name: Name, scale: Scale, out: Out = None, roots: Roots = ROOTS) -> None:
    """Write tables, figures and report.md from the collected runs of a milestone or experiment."""
    from refblend.study.report.build import SCORING, Place, write_report, write_scoring
    from refblend.study.runs.collect import read_collected

    runs, models, results, params = roots
    place = Place(scale, results / scale, models / scale, params)
    folder = out or results / scale / name
    if name == SCORING:
        typer.echo(str(write_scoring(place, folder)))
    else:
        collected = read_collected(runs / scale / "_collected" / name)
        typer.echo(str(write_report(place, name, collected, folder)))


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
    from refblend.study.report.build import Archive, Place

    _, models, results, params = roots
    place = Place(scale, results / scale, models / scale, params)
    typer.echo(str(Archive.read(place).write_verdicts()))


def redraw(scale: Scale, names: Names = None, out: Out = None, roots: Roots = ROOTS) -> None:
    """Write all tables, figures and reports anew from the archive, without any run or model."""
    from refblend.progress import step_progress
    from refblend.study.report.build import REPORTS, Archive, Place

    _, models, results, params = roots
    place = Place(scale, results / scale, models / scale, params)
    with step_progress("reports", 0, len(names or REPORTS) + 1) as show:
        for done, written in enumerate(Archive.read(place).redraw(names or (), out), 1):
            show(done, str(written))

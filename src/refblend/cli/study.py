"""``refblend study …``: the steps of the workflow, each usable by hand; and ``refblend plan``."""

import math
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from refblend.cli.options import Needed, Panels, Scale, example
from refblend.files import write_json
from refblend.progress import step_progress
from refblend.study.design import names

app = typer.Typer(
    cls=Panels, help="Plan seeds, write tables, figures and reports.", no_args_is_help=True
)

Name = Annotated[str, Argument(help="A milestone (m1, m2, m3, r), an experiment, or scoring.")]
Names = Annotated[list[str] | None, Argument(help="As for `report`; none: all reports.")]
RUNS, PARAMS = Path("runs"), Path("params")
OutFolder = Annotated[Path | None, Option(help="Folder to write; default: the results.")]

Runs = Annotated[list[Path], Argument()]
Tolerated = Annotated[int, Option(min=0)]
"""Of the hidden commands, as Needed."""


@app.command(epilog=example("study grid M1 --scale smoke --out grid.tsv"))
def grid(
    scale: Scale,
    out: Annotated[Path, Option(help="Table to write.")],
    experiments: Annotated[
        list[str] | None, Argument(help="Names; none: all with a report.")
    ] = None,
) -> None:
    """Derive grid.tsv from params/study and check every arm's configuration."""
    from refblend.study.design.grid import build_grid, unique_runs, write_grid
    from refblend.study.design.spec import experiments_of

    if not experiments:
        experiments = [n for m in names.MILESTONES for n in experiments_of(m, PARAMS, scale)]
    frame = build_grid(experiments, scale, PARAMS)
    write_grid(frame, out)
    typer.echo(f"{out}: {len(frame)} rows, {len(unique_runs(frame))} runs")


@app.command(hidden=True)
def fail(runs: Runs, status: Annotated[int, Option()], log: Needed) -> None:
    """Record a job's unfinished runs as failed; pass on a signal's status, so that they resume."""
    from refblend.study.runs.checks import SIGNALLED, record_failure

    if status >= SIGNALLED:
        raise typer.Exit(status)
    for run in record_failure(runs, status, log):
        typer.echo(f"{run}: training ended with status {status}; recorded as failed")


@app.command(hidden=True)
def mark(runs: Runs, out: Needed) -> None:
    """Write a training job's marker: status and identity of every seed."""
    from refblend.study.runs.checks import block_record

    write_json(out, block_record(runs))


@app.command(hidden=True)
def collect(
    grid: Needed,
    scale: Scale,
    out: Needed,
    experiments: Annotated[list[str] | None, Argument()] = None,
) -> None:
    """Read the runs of experiments of a grid into tidy frames."""
    from refblend.study.design.grid import read_grid, select
    from refblend.study.runs.collect import collect as collect_runs
    from refblend.study.runs.collect import write_collected

    frame = read_grid(grid)
    collected = collect_runs(select(frame, experiments) if experiments else frame, scale, RUNS)
    write_collected(collected, out)
    counts = collected.runs.status.value_counts()
    typer.echo(f"{out}: " + ", ".join(f"{count} {name}" for name, count in counts.items()))


@app.command(hidden=True)
def check(
    collected: Needed,
    out: Needed,
    nonfinite: Tolerated = 0,
    oom: Tolerated = 0,
    overlength: Tolerated = 0,
) -> None:
    """Fail if a run did not finish or incidents exceed the tolerated number."""
    from refblend.study.runs.checks import check_milestone
    from refblend.study.runs.collect import read_collected

    limits = {"nonfinite": nonfinite, "oom": oom, "overlength": overlength}
    record = check_milestone(read_collected(collected), limits)
    write_json(out, record)
    typer.echo(f"all {record['runs']} runs finished; incidents {record['incidents']}")


@app.command(epilog=example("study report m1 --scale smoke"))
def report(name: Name, scale: Scale, out: OutFolder = None) -> None:
    """Write tables, figures and report.md from the collected runs of a milestone or experiment."""
    from refblend.study.report.build import SCORING, Place, write_report, write_scoring
    from refblend.study.runs.collect import read_collected

    place = Place.of(scale)
    folder = out or place.results / name
    if name == SCORING:
        typer.echo(str(write_scoring(place, folder)))
    else:
        collected = read_collected(RUNS / scale / "_collected" / name)
        typer.echo(str(write_report(place, name, collected, folder)))


@app.command(epilog=example("study archive --scale cpu"))
def archive(
    scale: Scale,
    grid: Annotated[Path | None, Option(help="Default: the archive's own.")] = None,
) -> None:
    """Gather a grid and every number of its runs in results/<scale>, and write verdicts.csv.

    Runs without a folder keep the numbers that the archive has of them.
    """
    from refblend.study.design.grid import read_grid, write_grid
    from refblend.study.report.build import Archive, Place
    from refblend.study.runs.collect import collect, copy_quality, write_collected

    place = Place.of(scale)
    out = place.results
    frame = read_grid(grid or out / "grid.tsv")
    collected = collect(frame, scale, RUNS, archive=out)
    write_grid(frame, out / "grid.tsv")
    write_collected(collected, out)
    circumstances = RUNS / scale / "_collected" / "scoring" / "circumstances"
    copy_quality(place.models, circumstances, out)
    typer.echo(f"{out / 'runs.parquet'}: {len(collected.runs)} runs")
    typer.echo(str(Archive.read(place).write_verdicts()))


@app.command(epilog=example("study redraw --scale cpu --out redrawn"))
def redraw(scale: Scale, names: Names = None, out: OutFolder = None) -> None:
    """Write all tables, figures and reports anew from the archive, without any run or model."""
    from refblend.study.report.build import REPORTS, Archive, Place

    show = step_progress("reports", len(names or REPORTS) + 1)
    for done, written in enumerate(Archive.read(Place.of(scale)).redraw(names or (), out), 1):
        show(done, str(written))


@app.command(epilog=example("study recommend M3 --scale cpu --out recommended"))
def recommend(
    scale: Scale,
    experiments: Annotated[
        list[str] | None, Argument(help="Names; none: all with regimes.")
    ] = None,
    out: Annotated[Path, Option(help="Folder to write.")] = PARAMS / "recommended",
) -> None:
    """Write what experiments recommend, <regime>.yaml each, to be added with --config."""
    from refblend.study.report.build import Archive, Place

    for path in Archive.read(Place.of(scale)).recommend(experiments or (), out):
        typer.echo(str(path))


@app.command(epilog=example("study power results/cpu/m2/tables/per_seed.csv noisy_entropy"))
def power(
    runs: Annotated[Path, Argument(help="Table of earlier runs, e.g. per_seed.csv.")],
    experiments: Annotated[list[str], Argument(help="Names of files of params/study.")],
    scale: Annotated[names.Scale, Option(help="The scale whose declared seeds are shown.")] = "cpu",
    effect: Annotated[
        float | None,
        Option(min=1e-6, max=1e6, help="Smallest difference of interest; default: theirs."),
    ] = None,
    target: Annotated[float, Option(min=0.01, max=0.99, help="Power wanted.")] = 0.8,
) -> None:
    """Seeds that experiments' contrasts take, from the variance of earlier runs.

    An experiment without a primary contrast is planned by all of its contrasts. least_detectable
    says none where the declared seeds are too few for the exact test to reach α.
    """
    from refblend.study.design.spec import load_experiments
    from refblend.study.planning import power as planning

    values, specs = planning.read_runs(runs), load_experiments(PARAMS, experiments)
    table = planning.power_table(values, specs, scale, target, effect, runs)
    typer.echo(table.where(table.notna(), "–").to_string(index=False, float_format=_number))
    typer.echo(
        "deviation: over seeds, of paired differences or of single runs. seeds_difference, "
        f"seeds_equivalence: for a power of {target:g} to find a difference of interest, or to "
        "show that any difference stays within the margin. least_detectable: the smallest "
        "difference that the declared seeds can show. –: no number is enough, or nothing varies."
    )


def _number(value: float) -> str:
    return "none" if math.isinf(value) else f"{value:.4g}"


def plan(
    experiments: Annotated[list[str], Argument(help="Names, e.g. M1.")],
    scale: Scale,
    slots: Annotated[int, Option(min=1, help="Cores, one per run, or GPUs.")],
) -> None:
    """Estimate the cost of a study from the finished runs of results/<scale>, the newest first."""
    from tabulate import tabulate

    from refblend.study.design.grid import build_grid, configurations
    from refblend.study.design.workflow import gpus_to_train
    from refblend.study.planning import costs

    found = Path("results").glob(f"{scale}/*/tables/resources.csv")
    tables = sorted(found, key=lambda path: path.stat().st_mtime_ns)  # the last one counts
    grid = build_grid(experiments, scale)
    gpus = {arm: gpus_to_train(own) for arm, own in configurations(grid, scale).items()}
    arms, totals = costs.plan_study(grid, costs.read_resources(tables), gpus, slots)
    typer.echo(tabulate(arms, headers="keys", floatfmt=".3g") + "\n")
    shown = {name: "–" if math.isnan(value) else f"{value:.4g}" for name, value in totals.items()}
    shown["measured in"] = ", ".join(map(str, tables))
    typer.echo(tabulate(shown.items(), disable_numparse=True, tablefmt="plain"))

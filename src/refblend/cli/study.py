"""``refblend study …``: the steps of the workflow, each usable by hand."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from refblend.cli import study_report
from refblend.cli.help import Panels
from refblend.cli.options import Scale, with_options
from refblend.study.design import names

app = typer.Typer(
    cls=Panels,
    help="Derive the grid, collect runs, write tables, figures and reports.",
    no_args_is_help=True,
)
study_report.register(app)

Folder = Annotated[Path, typer.Option(help="Folder written by `refblend study collect`.")]
Out = Annotated[Path, typer.Option(help="File or folder to write.")]
Params = Annotated[Path, typer.Option(help="Root of the parameter files.")]
Tolerated = Annotated[
    list[str] | None,
    typer.Option(
        help="kind=number over all runs, e.g. oom=0; may be repeated. For `study guard` "
        "judge_invalid is a share of a run's scores."
    ),
]


@app.command()
def grid(
    experiments: Annotated[list[str], typer.Argument(help="Names, e.g. M1.")],
    scale: Scale,
    out: Out,
    params: Params = Path("params"),
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
    tolerated: Tolerated = None,
) -> None:
    """Fail if a run did not finish or incidents exceed the tolerated number."""
    from refblend.files import write_json
    from refblend.study.runs.checks import check_milestone, parse_limits
    from refblend.study.runs.collect import read_collected

    limits = parse_limits(tolerated or [])
    record = check_milestone(read_collected(collected), limits)
    write_json(out, record)
    typer.echo(f"all {record['runs']} runs finished; incidents {record['incidents']}")


@app.command()
def recommend(
    collected: Folder,
    scale: Scale,
    out: Annotated[
        Path,
        typer.Option(
            help="recommended.yaml; next to it go its record, .json, and the blend that M3 tests, "
            ".challenger.yaml."
        ),
    ],
    params: Params = Path("params"),
    attacks: Annotated[
        Path | None,
        typer.Option(help="attacks.csv of the scoring study; decides scoring.on_failure."),
    ] = None,
    regime: Annotated[
        str | None, typer.Option(help="A regime that an experiment declares; none: M3's own.")
    ] = None,
) -> None:
    """Choose the recommended configuration from the runs of M2 by a fixed rule."""
    from refblend.study.recommend.candidates import check_scale
    from refblend.study.recommend.choose import recommend as choose
    from refblend.study.recommend.on_failure import read_attacks
    from refblend.study.recommend.overlay import write_recommendation
    from refblend.study.runs.collect import read_collected

    table = read_attacks(attacks) if attacks else None
    frames = read_collected(collected)
    check_scale(frames, scale, params)
    chosen = choose(frames, scale, params, table, regime)
    write_recommendation(chosen, out)
    typer.echo(f"{out}: {chosen.arm}. {chosen.evidence.text}")


@app.command()
def guard(
    collected: Folder,
    recommended: Annotated[
        Path,
        typer.Option(help="File written by `refblend study recommend`; others lie beside it."),
    ],
    scale: Scale,
    out: Annotated[Path, typer.Option(help="guards.json; not written when a guard fails.")],
    tolerated: Tolerated = None,
    params: Params = Path("params"),
) -> None:
    """Fail when runs of M3 are missing, have incidents, or fall below the baseline."""
    from refblend.files import write_json
    from refblend.study.recommend.candidates import load_confirmation
    from refblend.study.recommend.guards import guard as check
    from refblend.study.recommend.guards import parse_tolerated
    from refblend.study.runs.collect import read_collected

    limits, roles = parse_tolerated(tolerated or []), load_confirmation(scale, params)
    record = check(read_collected(collected), recommended, roles, limits)
    write_json(out, record)
    for each in record["challengers"]:
        difference = each["difference"]
        typer.echo(
            f"{out}: {each['arm']} − {each['against']}: {difference['estimate']:+.4f} "
            f"[{difference['low']:+.4f}, {difference['high']:+.4f}] ({record['measure']}, "
            f"n = {difference['n']})"
        )


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is to be found, and how surely."""

    effect: Annotated[
        float | None, typer.Option(min=0, max=1e6, help="Smallest difference of interest [0.03].")
    ] = None
    margin: Annotated[
        float | None, typer.Option(min=0, max=1e6, help="Within ± this arms are equivalent [0.02].")
    ] = None
    target: Annotated[float, typer.Option(min=0.01, max=0.99, help="Power wanted.")] = 0.8
    alpha: Annotated[
        float | None, typer.Option(min=0.0001, max=0.5, help="Level of each test [0.05].")
    ] = None
    test_problems: Annotated[
        list[int] | None,
        typer.Option(min=1, help="Size of the test set; repeat it to plan for others."),
    ] = None
    hours: Annotated[float | None, typer.Option(min=0, max=1e6, help="Hours per run.")] = None
    experiments: Annotated[
        list[str] | None,
        typer.Option(
            help="Plan the primary contrasts of these, with the effect, margin, α, endpoint and "
            "baseline that their files declare; may be repeated."
        ),
    ] = None
    scale: Annotated[
        names.Scale | None, typer.Option(help="Whose declared seeds are shown with these [cpu].")
    ] = None
    params: Annotated[
        Path | None, typer.Option(help="Root of the parameter files with these [params].")
    ] = None


@app.command()
@with_options
def power(
    runs: Annotated[Path, typer.Argument(help="Table of earlier runs, e.g. per_seed.csv.")],
    question: Question,
    measure: Annotated[
        str | None, typer.Option(help="Column with an accuracy [test_greedy].")
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(help="Arm that the others are paired with [off].")
    ] = None,
) -> None:
    """Seeds per arm for a difference and for equivalence, from the variance of earlier runs.

    least_detectable is none where the present seeds are too few for the exact test that decides a
    verdict to reach α.
    """
    from refblend.study.planning import power as planning
    from refblend.study.report.study import read_experiments

    asked = {"effect": question.effect, "margin": question.margin, "alpha": question.alpha}
    levels = {name: value for name, value in asked.items() if value is not None}
    _refuse_ignored(question, levels | {"measure": measure, "baseline": baseline})
    wanted = planning.PowerQuestion(
        power=question.target,
        test_sizes=tuple(question.test_problems or ()),
        hours_per_run=question.hours,
        **levels,
    )
    values = planning.read_runs(runs)
    if question.experiments:
        params = question.params or Path("params")
        specs = read_experiments(tuple(question.experiments), params)
        table = planning.design_table(values, specs, question.scale or "cpu", wanted, runs)
    else:
        measure = measure or "test_greedy"
        spread = planning.read_spread(values, measure, baseline or "off", runs)
        if question.test_problems:
            planning.check_share(values[measure], runs)
        table = planning.power_table(spread, wanted)
    typer.echo(table.to_string(index=False, float_format=_number))


def _number(value: float) -> str:
    return "none" if math.isinf(value) else f"{value:.4g}"


def _refuse_ignored(question: Question, declared: dict[str, Any]) -> None:
    """Refuse options that would have no effect; ``declared`` are those that experiments declare."""
    from refblend.errors import StudyError

    of_experiments = {"scale": question.scale, "params": question.params}
    options = declared if question.experiments else of_experiments
    given = [f"--{name}" for name, value in options.items() if value is not None]
    if not given:
        return
    if question.experiments:
        reason = f"{', '.join(given)} cannot be given with --experiments, whose files declare "
        reason += "it" if len(given) == 1 else "them"
        remedy = f"Leave out {', '.join(given)}, or change the files of the experiments."
    else:
        reason = f"{', '.join(given)} without --experiments would have no effect"
        remedy = f"Leave out {', '.join(given)}, or name experiments."
    raise StudyError(reason, remedy)
